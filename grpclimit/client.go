package grpclimit

import (
	"cmp"
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/sash"
	"example.com/sash/middleware"
)

// ClientOptions are the optional settings of a [ClientInterceptor]. The zero value is the default. All
// functions may be called concurrently.
type ClientOptions struct {
	// Refuse fails a call at once when there is no room. By default it waits, as long as its context allows; a call whose
	// deadline is earlier fails at once.
	Refuse bool
	// Cost is the units that a call, or a stream's start, costs: at least 1. Nil is 1.
	Cost func(call Call) int64
	// FailOpen sends calls while the store fails. By default they are not sent.
	FailOpen bool
	// Timeout is the longest that a decision may take; a slower store has failed. Waiting for room
	// does not count. Zero is a second, negative is as long as the call's context allows.
	Timeout time.Duration
	// OnError receives the same errors as ServerOptions.OnError.
	OnError func(call Call, err error)
}

// A ClientInterceptor holds the calls that a client sends to limits, such as those that the server
// announces. It is safe for concurrent use.
//
// It charges a call once: what gRPC itself sends again under a retry policy is not charged.
type ClientInterceptor struct {
	undecided
	limiter *sash.Limiter
	key     KeyFunc
	opts    ClientOptions
}

// NewClientInterceptor returns an interceptor that holds every key to the limiter's limits. The usual keys
// are [Target] and Join(Target, Method). A nil opts is the default. It panics if limiter or key is nil.
func NewClientInterceptor(limiter *sash.Limiter, key KeyFunc, opts *ClientOptions) *ClientInterceptor {
	need(limiter, key)
	opts = cmp.Or(opts, &ClientOptions{})
	c := &ClientInterceptor{undecided{opts.FailOpen, opts.OnError}, limiter, key, *opts}
	c.complete()
	return c
}

// Unary is a [grpc.UnaryClientInterceptor]. The error of a call that is not sent is a [*NotSentError].
func (c *ClientInterceptor) Unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	call := Call{Context: ctx, FullMethod: method, Target: cc.Target(), Message: req, client: true}
	if err := c.admit(call); err != nil {
		return err
	}
	return invoker(ctx, method, req, reply, cc, opts...)
}

// Stream is a [grpc.StreamClientInterceptor]. It charges a stream when it starts. The error of a stream
// that is not started is a [*NotSentError].
func (c *ClientInterceptor) Stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	call := Call{Context: ctx, FullMethod: method, Target: cc.Target(), Stream: true, client: true}
	if err := c.admit(call); err != nil {
		return nil, err
	}
	return streamer(ctx, desc, cc, method, opts...)
}

// admit returns nil when the client sends the call.
func (c *ClientInterceptor) admit(call Call) error {
	ctx := call.Context
	key, limited, err := c.key.Resolve(call)
	if err == nil && !limited {
		return nil
	}
	cost := int64(1)
	if err == nil && c.opts.Cost != nil {
		cost = c.opts.Cost(call)
	}
	for err == nil {
		var res sash.Result
		err = middleware.Within(ctx, c.opts.Timeout, func(ctx context.Context) (err error) {
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
		if late := ok && time.Until(deadline) < res.RetryAfter; c.opts.Refuse || late {
			return notSent(key, res, late && !c.opts.Refuse)
		}
		select {
		case <-time.After(res.RetryAfter):
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if s := c.fail(call, err); s != nil {
		return &NotSentError{Err: err, status: s}
	}
	return nil
}

// A NotSentError means that a [ClientInterceptor] did not send a call. errors.Is and errors.As find the
// reason: a [*sash.LimitedError] when there is no room, sash.ErrUnavailable when the store failed,
// context.Canceled or context.DeadlineExceeded, ErrNoKey, ErrBadKey, or the error of the key function.
//
// Its gRPC status is what a server would answer, so that code which looks at codes works as usual:
// ResourceExhausted (DeadlineExceeded where room comes only after the deadline) and Unavailable have
// RetryInfo. Error contains the key; the status does not, because handlers return such errors to clients of
// their own.
type NotSentError struct {
	// Err is why the call was not sent.
	Err error

	status *status.Status
}

// Error says that the call was not sent, and why.
func (e *NotSentError) Error() string { return "grpclimit: the call was not sent: " + e.Err.Error() }

// Unwrap returns the reason.
func (e *NotSentError) Unwrap() error { return e.Err }

// GRPCStatus returns the status for gRPC's package status.
func (e *NotSentError) GRPCStatus() *status.Status {
	if e.status == nil {
		return status.New(codes.Unknown, "the call was not sent")
	}
	return e.status
}

// notSent returns the error of a call for which there is no room.
func notSent(key string, res sash.Result, late bool) error {
	by, _ := res.RefusedBy()
	err := &sash.LimitedError{Key: key, Limit: by.Limit, Result: res}
	code, message := codes.ResourceExhausted, "not sent: "+limitedMessage(inWords(by.Limit, Requests), res.Blocked, res.RetryAfter)
	if late {
		err.Cause = context.DeadlineExceeded
		code, message = codes.DeadlineExceeded, message+", which is past the deadline"
	}
	return &NotSentError{Err: err, status: withDetails(status.New(code, message), retryInfo(res.RetryAfter))}
}
