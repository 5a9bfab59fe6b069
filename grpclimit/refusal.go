package grpclimit

import (
	"errors"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"example.com/sash"
	"example.com/sash/middleware"
)

// refusal returns the status of a refused call: RetryInfo, and a QuotaFailure with one violation for each limit
// that refused. Its message describes the limit with the longest retry time, and does not contain the key.
func refusal(d *middleware.Decision[Call]) *status.Status {
	failure := &errdetails.QuotaFailure{}
	var retry, longest time.Duration
	words := ""
	limits := d.Result.Limits()
	for i := range limits {
		l, layer := &limits[i], d.LayerOf(limits, i)
		name, wait := layer.Describe(l)
		retry = max(retry, wait)
		if !l.Refused {
			continue
		}
		if layer.Name != "" {
			name = layer.Name + ":" + name
		}
		description := inWords(l.Limit, layer.Charge)
		if words == "" || wait > longest {
			words, longest = description, wait
		}
		failure.Violations = append(failure.Violations, &errdetails.QuotaFailure_Violation{
			Description: valid(description),
			QuotaId:     valid(name),
			QuotaValue:  l.Limit.Units,
		})
	}
	message := "limited to " + words
	if d.Result.Blocked {
		message += "; refused too often"
	}
	message = valid(message + "; retry after " + retry.String())
	return withRetry(codes.ResourceExhausted, message, retry, failure)
}

// fail returns the status of a call without a decision, or nil if the call continues anyway. The status says
// only what a caller can act on, because err may name the store.
func (o *ServerOptions) fail(call Call, err error) *status.Status {
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
		if fromKey, ok := errors.AsType[*middleware.FuncError](err); ok {
			if s, ok := status.FromError(fromKey.Err); ok && s.Code() != codes.OK {
				return s
			}
		}
	}
	o.OnError(call, err)
	if failure != middleware.StoreFailed {
		return status.New(codes.Internal, "the call could not be checked against its limits")
	}
	if o.FailOpen {
		return nil
	}
	retry := middleware.RetryAfter().Round(time.Millisecond)
	return withRetry(codes.Unavailable, "the call cannot be taken at the moment; retry after "+retry.String(), retry)
}

func withRetry(code codes.Code, message string, retry time.Duration, more ...protoadapt.MessageV1) *status.Status {
	s, info := status.New(code, message), &errdetails.RetryInfo{RetryDelay: durationpb.New(retry)}
	if detailed, err := s.WithDetails(append([]protoadapt.MessageV1{info}, more...)...); err == nil {
		return detailed
	}
	return s // valid text and durations always marshal
}

// valid returns text that a protobuf string can hold. A key or a name can contain any bytes.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// inWords describes a limit as [sash.LimitedError] does: "10 calls per minute", "5 failed calls per hour", "3 calls at
// once".
func inWords(l sash.Limit, charge Charge) string {
	limited := sash.LimitedError{Limit: l, AtOnce: charge == InFlight}
	_, words, _ := strings.Cut(limited.Error(), "is constrained to ")
	words, _, _ = strings.Cut(words, ";")
	if charge == Failures {
		words = strings.Replace(words, "call", "failed call", 1)
	}
	return words
}

// RetryAfter returns the delay of the RetryInfo in an error's status: how long a client should wait before it
// sends the call again. It returns false if the RetryInfo is missing or invalid. A server that you do not trust
// may send any delay up to 292 years.
func RetryAfter(err error) (time.Duration, bool) {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok && info.GetRetryDelay().CheckValid() == nil {
			if d := info.GetRetryDelay().AsDuration(); d >= 0 {
				return d, true
			}
		}
	}
	return 0, false
}
