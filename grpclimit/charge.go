package grpclimit

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/sash/middleware"
)

// A Charge says what a layer counts. See [middleware.Charge].
type Charge = middleware.Charge

// The charges.
const (
	// Requests counts every call that is admitted.
	Requests = middleware.Requests
	// Failures counts the calls whose outcome is Failed, see [OutcomeFunc], such as wrong passwords. A stream is
	// one attempt until its handler returns. ServerOptions.FailOpen is an error beside it.
	Failures = middleware.Failures
	// InFlight counts the calls whose handler has not returned, such as open streams. RetryInfo is a second.
	InFlight = middleware.InFlight
)

// An Outcome is how a call ended. See [middleware.Outcome].
type Outcome = middleware.Outcome

// The outcomes: see package middleware.
const (
	Neutral   = middleware.Neutral
	Failed    = middleware.Failed
	Succeeded = middleware.Succeeded
)

// An OutcomeFunc returns the outcome of a call by the status that its handler, or an interceptor that runs after
// this one, returned: OK if it returned no error, what gRPC makes of an error without a status (Unknown, Canceled or
// DeadlineExceeded), and Internal if it panicked.
//
// A handler that returned no error, although the call's context had ended, has not succeeded, because the client got
// no answer: its status is Canceled or DeadlineExceeded.
type OutcomeFunc func(call Call, end *status.Status) Outcome

// ByCode is an [OutcomeFunc]: OK is Succeeded. The codes that stand for a fault of the client are Failed, as those of
// HTTP's 4xx are with httplimit.ByStatus: InvalidArgument, NotFound, AlreadyExists, PermissionDenied, Unauthenticated,
// FailedPrecondition, Aborted, OutOfRange and Canceled. The rest, such as ResourceExhausted, is Neutral.
//
// A client that leaves, or whose deadline passes, has Failed too, because the handler may have got far enough: an
// attacker gains nothing by ending an attempt early, and a user whose connection breaks uses up one of their own attempts.
// So DeadlineExceeded is Failed if the call's own deadline has passed, and Neutral if it was one of the handler's. Where
// clients usually end streams by leaving, an OutcomeFunc of your own has to tell that from an attack.
func ByCode(call Call, end *status.Status) Outcome {
	switch end.Code() {
	case codes.OK:
		return Succeeded
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.PermissionDenied, codes.Unauthenticated,
		codes.FailedPrecondition, codes.Aborted, codes.OutOfRange, codes.Canceled:
		return Failed
	case codes.DeadlineExceeded:
		if call.Context.Err() != nil {
			return Failed
		}
	}
	return Neutral
}

// endOf returns the status with which a call ends whose handler returned err.
func endOf(call Call, err error) *status.Status {
	if err == nil {
		err = call.Context.Err()
	}
	if end, ok := status.FromError(err); ok {
		return end
	}
	return status.FromContextError(err)
}
