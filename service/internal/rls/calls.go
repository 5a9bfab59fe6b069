package rls

import (
	"container/list"
	"context"
	"net"
	"strings"
	"sync"
	"time"

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
	partial list.List        // guarded by mu: calls whose message has not come, the oldest first
	whole   list.List        // guarded by mu: other calls, likewise
	watches map[net.Addr]int // guarded by mu: of each connection
	watched int              // guarded by mu: of all
}

// A call is one that calls counts. Its context has it under callKey.
type call struct {
	cancel context.CancelFunc
	place  *list.Element // guarded by calls.mu: in partial or whole
	whole  bool          // guarded by calls.mu: the message has come
}

type callKey struct{}

// enter lets a call begin. One too many cancels the oldest whose message has not come, or else the oldest: a client
// that waits for an answer has sent its message.
func (c *calls) enter(ctx context.Context, info *tap.Info) (context.Context, error) {
	if info.FullMethodName == healthpb.Health_Watch_FullMethodName {
		return c.watch(ctx)
	}
	conn := c.conns.Of(client(ctx))
	ctx, cancel := context.WithTimeout(ctx, c.within)
	one := &call{cancel: cancel}
	if conn != nil {
		conn.Begin()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.partial.Len()+c.whole.Len() >= c.most {
		oldest := &c.partial
		if oldest.Len() == 0 {
			oldest = &c.whole
		}
		oldest.Remove(oldest.Front()).(*call).cancel()
	}
	one.place = c.partial.PushBack(one)
	context.AfterFunc(ctx, func() {
		cancel()
		if conn != nil {
			conn.End()
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if !one.whole && !strings.HasPrefix(info.FullMethodName, "/grpc.") {
			c.lost()
		}
		c.partial.Remove(one.place) // which removes nothing that is not in the list
		c.whole.Remove(one.place)
	})
	return context.WithValue(ctx, callKey{}, one), nil
}

// arrived notes that the message of a call has come. It is a grpc.UnaryServerInterceptor.
func (c *calls) arrived(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if one, ok := ctx.Value(callKey{}).(*call); ok {
		c.mu.Lock()
		one.whole = true
		if c.partial.Remove(one.place); ctx.Err() == nil {
			one.place = c.whole.PushBack(one)
		}
		c.mu.Unlock()
	}
	return next(ctx, req)
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
