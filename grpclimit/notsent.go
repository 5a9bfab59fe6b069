package grpclimit

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/sash"
)

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
