package grpclimit

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"

	"example.com/sash"
	"example.com/sash/middleware"
)

// Mode says what a client does with a call for which there is no room.
type Mode uint8

// The modes of a ClientInterceptor.
const (
	// Wait waits until there is room, as long as the call's context allows. A call whose deadline is
	// earlier fails at once.
	Wait Mode = iota
	// Refuse fails at once.
	Refuse
)

var modeNames = [...]string{Wait: "wait", Refuse: "refuse"}

// String returns "wait" or "refuse".
func (m Mode) String() string {
	if int(m) < len(modeNames) {
		return modeNames[m]
	}
	return fmt.Sprintf("Mode(%d)", uint8(m))
}

// ClientOptions are the optional settings of a [ClientInterceptor]. The zero value is the default. All
// functions may be called concurrently.
type ClientOptions struct {
	// Mode says what happens when there is no room. Zero is Wait.
	Mode Mode
	// Cost is the units that a call, or a stream's start, costs: at least 1. Nil is 1.
	Cost func(ctx context.Context, call Call) int64
	// OnUnavailable says what happens while the store fails. Zero is FailClosed: calls are not sent.
	OnUnavailable Unavailable
	// Timeout is the longest that a decision may take; a slower store has failed. Waiting for room
	// does not count. Zero is a second, negative is as long as the call's context allows.
	Timeout time.Duration
	// OnError receives the same errors as ServerOptions.OnError.
	OnError func(ctx context.Context, call Call, err error)
}

// A ClientInterceptor holds the calls that a client sends to limits, such as those that the server
// announces. It is safe for concurrent use.
//
// It charges a call once: what gRPC itself sends again under a retry policy is not charged.
type ClientInterceptor struct {
	gate
	limiter *sash.Limiter
	key     middleware.KeyFunc[request]
	cost    func(context.Context, Call) int64
	timeout time.Duration
	mode    Mode
}

// NewClientInterceptor returns an interceptor that holds every key to the limiter's limits. The usual keys
// are [Target] and Join(Target, Method). A nil opts is the default. It panics if limiter or key is nil.
func NewClientInterceptor(limiter *sash.Limiter, key KeyFunc, opts *ClientOptions) (*ClientInterceptor, error) {
	opts = cmp.Or(opts, &ClientOptions{})
	need(limiter, key)
	c := &ClientInterceptor{
		gate:    gate{onUnavailable: opts.OnUnavailable, onError: opts.OnError},
		limiter: limiter, key: theirs(key)[0], cost: opts.Cost, timeout: opts.Timeout, mode: opts.Mode,
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	if c.mode > Refuse {
		return nil, fmt.Errorf("grpclimit: Mode is Wait or Refuse, not %d", c.mode)
	}
	return c, nil
}

// Unary is a [grpc.UnaryClientInterceptor]. The error of a call that is not sent is a [*NotSentError].
func (c *ClientInterceptor) Unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	call := Call{FullMethod: method, Target: cc.Target(), Message: req, client: true}
	if err := c.admit(ctx, call); err != nil {
		return err
	}
	return invoker(ctx, method, req, reply, cc, opts...)
}

// Stream is a [grpc.StreamClientInterceptor]. It charges a stream when it starts. The error of a stream
// that is not started is a [*NotSentError].
func (c *ClientInterceptor) Stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	call := Call{FullMethod: method, Target: cc.Target(), Stream: true, client: true}
	if err := c.admit(ctx, call); err != nil {
		return nil, err
	}
	return streamer(ctx, desc, cc, method, opts...)
}

// admit returns nil when the client sends the call.
func (c *ClientInterceptor) admit(ctx context.Context, call Call) error {
	key, limited, err := c.key.Resolve(request{ctx, call})
	if err == nil && !limited {
		return nil
	}
	cost := int64(1)
	if err == nil && c.cost != nil {
		cost = c.cost(ctx, call)
	}
	for err == nil {
		var res sash.Result
		err = middleware.Within(ctx, c.timeout, func(ctx context.Context) (err error) {
			res, err = c.limiter.AllowN(ctx, key, cost)
			return err
		})
		if err != nil {
			break
		}
		if res.Allowed {
			return nil
		}
		deadline, ok := ctx.Deadline()
		if late := ok && time.Until(deadline) < res.RetryAfter; c.mode == Refuse || late {
			return notSent(key, res, late && c.mode == Wait)
		}
		select {
		case <-time.After(res.RetryAfter):
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if s := c.fail(ctx, call, err); s != nil {
		return &NotSentError{Err: err, status: s}
	}
	return nil
}
