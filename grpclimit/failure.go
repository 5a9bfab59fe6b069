package grpclimit

import (
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/sash"
	"example.com/sash/middleware"
)

// undecided is what becomes of a call without a decision, on a server and on a client.
type undecided struct {
	failOpen bool
	onError  func(Call, error)
}

func (u *undecided) complete() {
	if u.onError == nil {
		u.onError = func(Call, error) {}
	}
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
	if u.failOpen {
		return nil
	}
	retry := middleware.RetryAfter().Round(time.Millisecond)
	return withDetails(status.New(codes.Unavailable, "the call cannot be taken at the moment; retry after "+retry.String()), retryInfo(retry))
}
