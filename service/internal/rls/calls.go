package rls

import (
	"cmp"
	"container/ring"
	"context"
	"errors"
	"net"
	"strings"
	"sync"
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
	lookTime   = 250 * time.Millisecond // between looks for calls that have ended without a handler
	maxCalls   = 10_000
	maxWatches = 10 // of health, on one connection
	allWatches = 4_096
	maxUntaken = 10 // answers that a connection has not taken in time, besides those to watches
)

// calls bounds the calls of a server. It sees a call before its message, which may never come.
type calls struct {
	within   time.Duration
	patience time.Duration // for a decision, from the arrival of the message
	most     int
	conns    *conns.Listener
	ending   context.Context // watches end with it; other calls have within
	lost     func()          // is called for each call, other than of health and reflection, that ends before its message came

	mu       sync.Mutex
	open     int              // guarded by mu: how many are in all
	all      ring.Ring        // guarded by mu: the root, and behind it the calls, the oldest first
	partial  ring.Ring        // guarded by mu: those whose message has not come, likewise
	deciding ring.Ring        // guarded by mu: those that are being decided, the first to begin first
	sweeps   bool             // guarded by mu: sweep will be called
	watches  map[net.Addr]int // guarded by mu: of each connection
	watched  int              // guarded by mu: of all
}

// A call is one that calls counts, and its context, which has it under callKey. One timer ends those that last too long,
// also their decisions, and a call that is answered leaves calls in its own goroutine: a timer, a context and a goroutine
// for each would be a fifth of its processor time.
type call struct {
	context.Context
	of     *calls
	conn   *conns.Conn // may be nil
	cancel context.CancelCauseFunc
	until  time.Time
	counts bool // lost is called for it

	leave func() bool // guarded by calls.mu: nothing more happens at the end of its stream; nil if a handler ends the call
	due   time.Time   // guarded by calls.mu: the end of its decision
	all   ring.Ring   // guarded by calls.mu: its place in calls.all, by itself if it has none
	stage ring.Ring   // guarded by calls.mu: its place in calls.partial or calls.deciding, likewise
	whole bool        // guarded by calls.mu: its message has come
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
	if err == nil {
		return nil
	}
	if cause := context.Cause(c.Context); errors.Is(cause, context.DeadlineExceeded) || errors.Is(cause, errUndecided) {
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
	one.Context, one.cancel = context.WithCancelCause(ctx)
	one.all.Value, one.stage.Value = one, one
	if one.conn != nil {
		one.conn.Begin()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open >= c.most {
		c.cut(cmp.Or(first(&c.partial), first(&c.all)), nil)
	}
	now := time.Now()
	one.until = now.Add(c.within)
	c.open++
	c.all.Prev().Link(&one.all)
	c.partial.Prev().Link(&one.stage)
	if info.FullMethodName != pb.RateLimitService_ShouldRateLimit_FullMethodName {
		one.leave = context.AfterFunc(ctx, one.end) // gRPC may end it before a handler does, or have no handler for it
	}
	if !c.sweeps {
		c.wake(now)
	}
	return one, nil
}

// arrived notes that the message of a call has come, and ends the call when it is answered. It is a
// grpc.UnaryServerInterceptor, for methods other than ShouldRateLimit.
func (c *calls) arrived(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if one, ok := ctx.Value(callKey{}).(*call); ok {
		c.mu.Lock()
		one.arrive()
		c.mu.Unlock()
		defer one.end()
	}
	return next(ctx, req)
}

// arrive notes that the message has come. The caller holds calls.mu.
func (c *call) arrive() {
	c.whole = true
	remove(&c.stage)
}

// decides notes that the message has come and the call is being decided. Its context ends after the patience.
func (c *call) decides() {
	now := time.Now()
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.arrive()
	if c.all.Next() == &c.all { // it was cut
		return
	}
	c.due = now.Add(c.of.patience)
	c.of.deciding.Prev().Link(&c.stage)
}

// end ends a call that is answered, or that its client has ended.
func (c *call) end() {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.of.forget(c)
}

// forget removes a call. The caller holds mu.
func (c *calls) forget(one *call) {
	if !remove(&one.all) {
		return
	}
	c.open--
	remove(&one.stage)
	if one.leave != nil {
		one.leave()
	}
	if !one.whole && one.counts {
		c.lost()
	}
	if one.conn != nil {
		one.conn.End()
	}
}

// cut cancels a call. The caller holds mu.
func (c *calls) cut(one *call, cause error) {
	c.forget(one)
	one.cancel(cause)
}

// wake has sweep called when the first call lasts too long, or at the next look. The caller holds mu.
func (c *calls) wake(now time.Time) {
	after := min(lookTime, c.within, c.patience) // of a call that begins to be decided right after this, too
	if oldest := first(&c.all); oldest != nil {
		after = min(after, oldest.until.Sub(now))
	}
	if oldest := first(&c.deciding); oldest != nil {
		after = min(after, oldest.due.Sub(now))
	}
	c.sweeps = true
	time.AfterFunc(after, c.sweep)
}

// sweep ends the calls that last too long, and forgets those without a handler that have ended: gRPC itself answers a
// call whose compression it does not have.
func (c *calls) sweep() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sweeps = false
	now := time.Now()
	for one := first(&c.all); one != nil && !now.Before(one.until); one = first(&c.all) {
		c.cut(one, context.DeadlineExceeded)
	}
	for one := first(&c.deciding); one != nil && !now.Before(one.due); one = first(&c.deciding) {
		remove(&one.stage)
		one.cancel(errUndecided)
	}
	for place := c.partial.Next(); place.Value != nil; {
		one := place.Value.(*call)
		if place = place.Next(); one.Context.Err() != nil {
			c.forget(one)
		}
	}
	if c.open > 0 {
		c.wake(now)
	}
}

// first returns the call behind the root of a ring, or nil if there is none.
func first(root *ring.Ring) *call {
	one, _ := root.Next().Value.(*call)
	return one
}

// remove takes a call out of its ring, and reports whether it was in it.
func remove(place *ring.Ring) bool {
	before := place.Prev()
	if before == place {
		return false
	}
	before.Unlink(1)
	return true
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
