package grpclimit

import (
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"example.com/sash"
)

// refusal returns the status of a refused call: RetryInfo, and a QuotaFailure with one violation for each
// limit that refused. Its message describes the one with the longest retry time. Nothing in it tells of the key.
func refusal(d *decision) *status.Status {
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
	return withDetails(status.New(codes.ResourceExhausted, limitedMessage(words, d.Result.Blocked, retry)), retryInfo(retry), failure)
}

func limitedMessage(words string, blocked bool, retry time.Duration) string {
	message := "limited to " + words
	if blocked {
		message += "; refused too often"
	}
	return valid(message + "; retry after " + retry.String())
}

func retryInfo(d time.Duration) *errdetails.RetryInfo {
	return &errdetails.RetryInfo{RetryDelay: durationpb.New(d)}
}

func withDetails(s *status.Status, details ...protoadapt.MessageV1) *status.Status {
	if detailed, err := s.WithDetails(details...); err == nil {
		return detailed
	}
	return s // valid text and durations always marshal
}

// valid returns text that a protobuf string can hold: a key or a name can have any bytes.
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

// RetryAfter returns the delay of the RetryInfo in an error's status: when to send the call again after a
// server's refusal, or after a [*NotSentError]. It returns false when there is none, or an invalid one. A
// server that you do not trust may send any delay up to 292 years.
func RetryAfter(err error) (time.Duration, bool) {
	s, ok := status.FromError(err)
	if err == nil || !ok {
		return 0, false
	}
	for _, detail := range s.Details() {
		info, ok := detail.(*errdetails.RetryInfo)
		if !ok || info.GetRetryDelay().CheckValid() != nil {
			continue
		}
		if d := info.GetRetryDelay().AsDuration(); d >= 0 {
			return d, true
		}
	}
	return 0, false
}
