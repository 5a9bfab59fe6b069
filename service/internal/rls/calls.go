package rls

import (
	"container/list"
	"context"
	"net"
	"sync"
	"time"

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
)

// calls bounds the calls of a server. It sees a call before its message, which may never come.
type calls struct {
	within time.Duration
	most   int
	conns  *conns.Listener
	ending context.Context // watches end with it; other calls have within

	mu      sync.Mutex
	open    list.List        // guarded by mu: functions that cancel calls, the oldest first
	watches map[net.Addr]int // guarded by mu: of each connection
}

// enter lets a call begin. One too many cancels the oldest: those of clients that wait for an answer are young.
func (c *calls) enter(ctx context.Context, info *tap.Info) (context.Context, error) {
	if info.FullMethodName == healthpb.Health_Watch_FullMethodName {
		return c.watch(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, c.within)
	conn := c.conns.Of(client(ctx))
	if conn != nil {
		conn.Begin()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open.Len() >= c.most {
		c.open.Remove(c.open.Front()).(context.CancelFunc)()
	}
	place := c.open.PushBack(cancel)
	context.AfterFunc(ctx, func() {
		cancel()
		if conn != nil {
			conn.End()
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.open.Remove(place)
	})
	return ctx, nil
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
		return nil, status.Errorf(codes.ResourceExhausted, "the connection watches health %d times: watch each name once", maxWatches)
	}
	if c.watches == nil {
		c.watches = make(map[net.Addr]int)
	}
	c.watches[from]++
	ctx, cancel := context.WithCancel(ctx)
	unlink := context.AfterFunc(c.ending, cancel)
	context.AfterFunc(ctx, func() {
		unlink()
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.watches[from]--; c.watches[from] == 0 {
			delete(c.watches, from)
		}
	})
	return ctx, nil
}
