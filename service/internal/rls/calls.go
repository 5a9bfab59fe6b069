package rls

import (
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"example.com/sash/service/internal/conns"
)

// Bounds of calls, from the arrival of their header.
const (
	callTime   = 10 * time.Second
	maxCalls   = 10_000
	maxWatches = 10 // of health, on one connection
	allWatches = 4_096
	maxUntaken = 10 // answers that a connection has not taken in time, besides those to watches
)

// calls bounds the calls of a server. It sees a call before its message, which may never come.
type calls struct {
	within time.Duration
	most   int
	conns  *conns.Listener
	ending context.Context // watches end with it; other calls have within
	lost   func()          // is called for each call, other than of health and reflection, that ends before its message came

	mu      sync.Mutex
	all     line             // guarded by mu: the oldest first
	partial line             // guarded by mu: those whose message has not come, likewise
	sweep   *time.Timer      // guarded by mu: calls overdue when the oldest call lasts too long
	sweeps  bool             // guarded by mu: it is set
	watches map[net.Addr]int // guarded by mu: of each connection
	watched int              // guarded by mu: of all
}

// A call is one that calls counts, and its context, which has it under callKey. One timer ends those that last too long,
// and a call that is answered leaves calls in its own goroutine: a timer and a goroutine for each would be a tenth of
// its processor time.
type call struct {
	context.Context
	of      *calls
	conn    *conns.Conn // may be nil
	cancel  context.CancelFunc
	until   time.Time
	overdue atomic.Bool
	counts  bool // lost is called for it

	leave func() bool // guarded by calls.mu: nothing more happens at the end of its stream
	links [2]links    // guarded by calls.mu: in all, and in partial
}

type callKey struct{}

// Deadline is of context.Context.
func (c *call) Deadline() (time.Time, bool) {
	if earlier, ok := c.Context.Deadline(); ok && earlier.Before(c.until) {
		return earlier, true
	}
	return c.until, true
}

// Err is of context.Context.
func (c *call) Err() error {
	err := c.Context.Err()
	if err != nil && c.overdue.Load() {
		return context.DeadlineExceeded
	}
	return err
}

// Value is of context.Context.
func (c *call) Value(key any) any {
	if key == (callKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// enter lets a call begin. One too many cancels the oldest whose message has not come, or else the oldest: a client
// that waits for an answer has sent its message.
func (c *calls) enter(ctx context.Context, info *tap.Info) (context.Context, error) {
	if info.FullMethodName == healthpb.Health_Watch_FullMethodName {
		return c.watch(ctx)
	}
	one := &call{of: c, conn: c.conns.Of(client(ctx)), counts: !strings.HasPrefix(info.FullMethodName, "/grpc.")}
	one.Context, one.cancel = context.WithCancel(ctx)
	if one.conn != nil {
		one.conn.Begin()
	}
	c.mu.Lock()
	if c.all.n >= c.most {
		oldest := c.partial.first
		if oldest == nil {
			oldest = c.all.first
		}
		c.cut(oldest)
	}
	one.until = time.Now().Add(c.within)
	c.all.push(one, 0)
	c.partial.push(one, 1)
	one.leave = context.AfterFunc(ctx, one.end) // gRPC may end it before a handler does
	if !c.sweeps {
		c.wake(c.within)
	}
	c.mu.Unlock()
	return one, nil
}

// service describes the protocol to gRPC, with a handler that ends its call when it has answered.
func (c *calls) service() *grpc.ServiceDesc {
	desc := pb.RateLimitService_ServiceDesc
	method := desc.Methods[0]
	handle := method.Handler
	method.Handler = func(srv any, ctx context.Context, read func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
		if one, ok := ctx.Value(callKey{}).(*call); ok {
			defer one.end()
		}
		return handle(srv, ctx, read, intercept)
	}
	desc.Methods = []grpc.MethodDesc{method}
	return &desc
}

// arrived notes that the message of a call has come. It is a grpc.UnaryServerInterceptor.
func (c *calls) arrived(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if one, ok := ctx.Value(callKey{}).(*call); ok {
		c.mu.Lock()
		c.partial.remove(one, 1)
		c.mu.Unlock()
	}
	return next(ctx, req)
}

// end ends a call that is answered, or that its client has ended.
func (c *call) end() {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.of.forget(c)
}

// forget removes a call. The caller holds mu.
func (c *calls) forget(one *call) {
	if !one.links[0].in {
		return
	}
	one.leave()
	if one.counts && one.links[1].in {
		c.lost()
	}
	c.all.remove(one, 0)
	c.partial.remove(one, 1)
	if one.conn != nil {
		one.conn.End()
	}
}

// cut cancels a call. The caller holds mu.
func (c *calls) cut(one *call) {
	c.forget(one)
	one.cancel()
}

// wake calls overdue after a time. The caller holds mu.
func (c *calls) wake(after time.Duration) {
	c.sweeps = true
	if c.sweep == nil {
		c.sweep = time.AfterFunc(after, c.overdue)
		return
	}
	c.sweep.Reset(after)
}

// overdue ends the calls that last too long.
func (c *calls) overdue() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sweeps = false
	for now := time.Now(); c.all.first != nil; {
		oldest := c.all.first
		if left := oldest.until.Sub(now); left > 0 {
			c.wake(left)
			return
		}
		oldest.overdue.Store(true)
		c.cut(oldest)
	}
}

// A line is a list of calls that have one of their links in it.
type line struct {
	first, last *call
	n           int
}

type links struct {
	prev, next *call
	in         bool
}

func (l *line) push(c *call, link int) {
	c.links[link] = links{prev: l.last, in: true}
	if l.last != nil {
		l.last.links[link].next = c
	} else {
		l.first = c
	}
	l.last = c
	l.n++
}

// remove does nothing if the call is not in the line.
func (l *line) remove(c *call, link int) {
	at := c.links[link]
	if !at.in {
		return
	}
	if at.prev != nil {
		at.prev.links[link].next = at.next
	} else {
		l.first = at.next
	}
	if at.next != nil {
		at.next.links[link].prev = at.prev
	} else {
		l.last = at.prev
	}
	c.links[link] = links{}
	l.n--
}

// client returns the address of the caller's connection, one pointer for each connection.
func client(ctx context.Context) net.Addr {
	if p, ok := peer.FromContext(ctx); ok {
		return p.Addr
	}
	return nil
}

// watch lets a stream of health begin. It may last as long as its connection.
func (c *calls) watch(ctx context.Context) (context.Context, error) {
	from := client(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watches[from] >= maxWatches {
		const advice = "the connection watches health %d times: watch each name once"
		return nil, status.Errorf(codes.ResourceExhausted, advice, maxWatches)
	}
	if c.watched >= allWatches {
		return nil, status.Errorf(codes.ResourceExhausted, "health is watched %d times: ask with Check instead", allWatches)
	}
	if c.watches == nil {
		c.watches = make(map[net.Addr]int)
	}
	c.watches[from]++
	c.watched++
	ctx, cancel := context.WithCancel(ctx)
	unlink := context.AfterFunc(c.ending, cancel)
	context.AfterFunc(ctx, func() {
		unlink()
		c.mu.Lock()
		defer c.mu.Unlock()
		c.watched--
		if c.watches[from]--; c.watches[from] == 0 {
			delete(c.watches, from)
		}
	})
	return ctx, nil
}
