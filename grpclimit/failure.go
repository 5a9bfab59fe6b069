package grpclimit

import (
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/sash"
	"example.com/sash/middleware"
)

// Unavailable says what happens to calls while the store fails.
type Unavailable = middleware.Unavailable

// The failure modes of an interceptor.
const (
	// FailClosed ends the call with Unavailable and a random RetryInfo of 5 to 10 seconds. It is the default because a limit protects
	// something, and a store often fails under load: to lift the limits just then should be a choice.
	FailClosed = middleware.FailClosed
	// FailOpen admits the call. There is no limit at all while the store fails. It suits limits that are a
	// courtesy rather than a protection. Watch OnError.
	FailOpen = middleware.FailOpen
)

// undecided is what becomes of a call without a decision, on a server and on a client.
type undecided struct {
	onUnavailable Unavailable
	onError       func(Call, error)
}

// check fills in the defaults.
func (u *undecided) check() error {
	if u.onUnavailable > FailOpen {
		return fmt.Errorf("grpclimit: OnUnavailable is FailClosed or FailOpen, not %d", u.onUnavailable)
	}
	if u.onError == nil {
		u.onError = func(Call, error) {}
	}
	return nil
}

// need panics without a limiter or a key function.
func need(limiter *sash.Limiter, key KeyFunc) {
	if limiter == nil {
		panic("grpclimit: an interceptor needs a limiter, from sash.New")
	}
	if key == nil {
		panic("grpclimit: an interceptor needs a key function, such as PeerAddress on a server or Target on a client")
	}
}

// fail returns the status of a call without a decision: nil when it goes on all the same. The status has only
// what a caller can act on; err may name the store.
func (u *undecided) fail(call Call, err error) *status.Status {
	if gone := call.Context.Err(); gone != nil {
		return status.FromContextError(gone)
	}
	failure := middleware.FailureOf(err)
	switch failure {
	case middleware.NoKey:
		return status.New(codes.InvalidArgument, "the call does not identify its caller")
	case middleware.BadKey:
		return status.New(codes.InvalidArgument, "the call identifies its caller more than once, or in a form that is not valid")
	case middleware.TooCostly:
		return status.New(codes.InvalidArgument, "the call costs more than a limit ever allows; make it smaller: waiting does not help")
	case middleware.Fault:
		var fromKey *middleware.FuncError
		if errors.As(err, &fromKey) {
			if s, ok := status.FromError(fromKey.Err); ok && s.Code() != codes.OK {
				return s
			}
		}
	}
	u.onError(call, err)
	if failure != middleware.StoreFailed {
		return status.New(codes.Internal, "the call could not be checked against its limits")
	}
	if u.onUnavailable == FailOpen {
		return nil
	}
	retry := middleware.RetryAfter().Round(time.Millisecond)
	return withDetails(status.New(codes.Unavailable, "the call cannot be taken at the moment; retry after "+retry.String()), retryInfo(retry))
}
