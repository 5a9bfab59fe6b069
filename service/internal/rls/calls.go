package rls

import (
	"cmp"
	"container/list"
	"context"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/tap"

	"example.com/sash/service/internal/conns"
)

// Bounds of calls, from the arrival of their header.
const (
	callTime   = 10 * time.Second
	maxCalls   = 10_000
	maxUntaken = 20                         // answers that a connection has not taken in time
	maxHalf    = largeMessages * maxMessage // bytes of messages that have not come whole
)

// calls bounds the calls of a server. It sees a call before its message, which may never come.
type calls struct {
	within time.Duration
	most   int
	half   int64 // bytes of messages that have not come whole
	conns  *conns.Listener
	lost   func() // is called for each call, other than of health and reflection, that ends before its message came

	mu      sync.Mutex
	partial list.List // guarded by mu: the calls whose message has not come, the oldest first
	whole   list.List // guarded by mu: the others, likewise
}

// A call is one that calls counts. Its context has it under callKey.
type call struct {
	of     *calls
	conn   *conns.Conn // may be nil
	cancel context.CancelFunc
	counts bool // lost is called for it
	leave  func() bool

	in    *list.List    // guarded by calls.mu: the list that it is in; nil after its end
	place *list.Element // guarded by calls.mu: its place there
}

type callKey struct{}

// enter lets a call begin. One too many cancels the oldest whose message has not come, or else the oldest: a client
// that waits for an answer has sent its message.
func (c *calls) enter(ctx context.Context, info *tap.Info) (context.Context, error) {
	one := &call{of: c, counts: !strings.HasPrefix(info.FullMethodName, "/grpc.")}
	if p, ok := peer.FromContext(ctx); ok {
		one.conn = c.conns.Of(p.Addr)
	}
	ctx, one.cancel = context.WithTimeout(ctx, c.within)
	if one.conn != nil {
		one.conn.Begin()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.partial.Len()+c.whole.Len() >= c.most {
		oldest := cmp.Or(c.partial.Front(), c.whole.Front()).Value.(*call)
		oldest.forget()
		oldest.cancel()
	}
	one.in, one.place = &c.partial, c.partial.PushBack(one)
	one.leave = context.AfterFunc(ctx, one.end) // gRPC may end it before a handler does, or have no handler for it
	return context.WithValue(ctx, callKey{}, one), nil
}

// arrived notes that the message of a call has come, and ends the call when it is answered. It is a
// grpc.UnaryServerInterceptor.
func (c *calls) arrived(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if one, ok := ctx.Value(callKey{}).(*call); ok {
		c.mu.Lock()
		if one.in != nil {
			one.in.Remove(one.place)
			one.in, one.place = &c.whole, c.whole.PushBack(one)
		}
		c.mu.Unlock()
		defer func() { one.leave(); one.end() }()
	}
	return next(ctx, req)
}

// end ends a call that is answered, or whose context has ended.
func (c *call) end() {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.forget()
}

// forget removes a call. The caller holds mu.
func (c *call) forget() {
	if c.in == nil {
		return
	}
	if c.in == &c.of.partial && c.counts {
		c.of.lost()
	}
	c.in.Remove(c.place)
	c.in = nil
	if c.conn != nil {
		c.conn.End()
	}
}
