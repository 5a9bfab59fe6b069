package middleware

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"example.com/sash"
)

// DefaultTimeout is the longest that a decision may take.
const DefaultTimeout = time.Second

// RetryAfter returns when a client should retry after a failure of the store: a random time from 5 to 10 seconds, so
// that clients that failed together do not return together.
func RetryAfter() time.Duration { return 5*time.Second + rand.N(5*time.Second+1) }

// Within calls decide with a context that ends after timeout. Zero is DefaultTimeout; a negative timeout sets
// no bound of its own. A decision that takes longer is a failure of the store, a [*sash.StoreError]. When ctx
// itself has ended, the error is that of decide.
func Within(ctx context.Context, timeout time.Duration, decide func(context.Context) error) error {
	if timeout < 0 {
		return decide(ctx)
	}
	timeout = cmp.Or(timeout, DefaultTimeout)
	within, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := decide(within)
	if err != nil && within.Err() != nil && ctx.Err() == nil {
		err = &sash.StoreError{Err: err}
	}
	return err
}

// A FuncError is an error of a function that the application gave to a middleware, such as a [KeyFunc].
// Whatever it wraps, the store has not failed.
type FuncError struct {
	// Err is the function's error.
	Err error
}

// Error returns the function's error.
func (e *FuncError) Error() string { return e.Err.Error() }

// Unwrap returns the function's error.
func (e *FuncError) Unwrap() error { return e.Err }

// A Failure says why there is no decision on a request, and so what has to change.
type Failure uint8

// The failures.
const (
	Fault       Failure = iota // a key function, a cost or a limit is wrong: the application has to be fixed
	NoKey                      // the request does not identify its subject: the client has to change it
	BadKey                     // it does so more than once, or malformed: the client has to change it
	TooCostly                  // the cost is above a limit's units: the client has to make the request smaller
	StoreFailed                // the store failed: FailOpen decides
)

var failureNames = [...]string{Fault: "fault", NoKey: "no-key", BadKey: "bad-key", TooCostly: "too-costly", StoreFailed: "store-failed"}

// String returns "fault", "no-key", "bad-key", "too-costly" or "store-failed".
func (f Failure) String() string {
	if int(f) < len(failureNames) {
		return failureNames[f]
	}
	return fmt.Sprintf("Failure(%d)", uint8(f))
}

// FailureOf classifies the error of [KeyFunc.Resolve], [Within] or a limiter.
func FailureOf(err error) Failure {
	var ofFunc *FuncError
	isFunc := errors.As(err, &ofFunc)
	switch {
	case errors.Is(err, ErrBadKey):
		return BadKey
	case errors.Is(err, ErrNoKey):
		return NoKey
	case isFunc:
		return Fault
	case errors.Is(err, sash.ErrCostAboveLimit):
		return TooCostly
	case errors.Is(err, sash.ErrUnavailable):
		return StoreFailed
	}
	return Fault
}
