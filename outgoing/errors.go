package outgoing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/sash"
)

// A CoolDownError means that a request was not sent, because the API refused a call of this or another process
// for a while, or because less is left than the request costs. It is [sash.ErrLimited]. Like every error of a
// RoundTripper it arrives inside a *url.Error: use errors.As.
type CoolDownError struct {
	// Key is the bucket or the account, see [Call].
	Key string
	// RetryAfter is the time until the bucket can be used again.
	RetryAfter time.Duration
	// Cause is nil, or why the call did not wait: an error that is context.DeadlineExceeded, or
	// [ErrMaxWait].
	Cause error
}

// Error names the bucket and the retry time.
func (e *CoolDownError) Error() string {
	s := fmt.Sprintf("outgoing: %s is cooling down, as its API requires; retry after %v", e.Key, e.RetryAfter.Round(time.Millisecond))
	if e.Cause != nil {
		s += " (" + reason(e.Cause) + ")"
	}
	return s
}

// Is reports that every CoolDownError is sash.ErrLimited.
func (e *CoolDownError) Is(target error) bool { return target == sash.ErrLimited }

// Unwrap returns the cause.
func (e *CoolDownError) Unwrap() error { return e.Cause }

// ErrMaxWait is the cause of a refusal in mode [Wait] whose wait is longer than [Options].MaxWait.
var ErrMaxWait = errors.New("outgoing: the wait is longer than MaxWait")

func reason(cause error) string {
	if errors.Is(cause, context.DeadlineExceeded) {
		return "past the deadline"
	}
	return cause.Error()
}
