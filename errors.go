package sash

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/sash/driver"
)

// Errors, for errors.Is. They keep four things apart: a refusal, a store that failed, a call that was wrong, and a
// caller that gave up (context.Canceled, context.DeadlineExceeded).
var (
	// ErrLimited is a refusal turned into an error by Do or Wait: see [LimitedError].
	ErrLimited = errors.New("sash: limited")
	// ErrUnavailable means that the store failed to answer: see [StoreError].
	ErrUnavailable = errors.New("sash: the store is unavailable")
	// ErrInvalidLimit means that a limit, or a set of limits, cannot be enforced.
	ErrInvalidLimit = errors.New("sash: invalid limit")
	// ErrInvalidCost means that a cost is below 1.
	ErrInvalidCost = errors.New("sash: invalid cost")
	// ErrCostAboveLimit means that a cost is above a limit's units, so that the call could never be admitted. The store is not asked.
	ErrCostAboveLimit = errors.New("sash: cost above the limit")
	// ErrInvalidKey means that a key is empty, blank, made of empty parts or longer than [MaxKeyLength].
	ErrInvalidKey = errors.New("sash: invalid key")
	// ErrInvalidID means that the ID of a call is empty or longer than [driver.MaxIDLength].
	ErrInvalidID = errors.New("sash: invalid id")
	// ErrUnsupported means that the store lacks the power that the call needs, or that [Options].CountRefused rules the call out.
	ErrUnsupported = driver.ErrUnsupported
)

// A countRefusedError is the ErrUnsupported of a call that the option CountRefused rules out, whatever the store can do.
type countRefusedError struct{ call string }

func (e countRefusedError) Error() string {
	return "sash: Options.CountRefused rules out " + e.call + "; use a limiter without it"
}

func (e countRefusedError) Unwrap() error { return ErrUnsupported }

// A LimitedError is a refusal: the call was right, the store answered, and there is no room. It is ErrLimited.
type LimitedError struct {
	// Key is the subject that was refused.
	Key string
	// Limit is the limit that refused the call; of several, the one that takes longest to have room.
	Limit Limit
	// Result is the whole result.
	Result Result
	// AtOnce says that the limit is that of a [Concurrency]. A slot can become free at any moment, at the latest after Result.RetryAfter.
	AtOnce bool
	// Cause is nil, or the error that stopped a wait, such as context.DeadlineExceeded.
	Cause error
}

// Error names the subject, the limit and the time to retry.
func (e *LimitedError) Error() string {
	calls := "calls"
	if e.Limit.Units == 1 {
		calls = "call"
	}
	s := fmt.Sprintf("%s is constrained to %d %s ", e.Key, e.Limit.Units, calls)
	after := e.Result.RetryAfter.Round(time.Microsecond)
	switch {
	case e.AtOnce && e.Cause != nil:
		return s + "at once; none ended before the deadline"
	case e.AtOnce:
		return s + fmt.Sprintf("at once; one ends within %v", after)
	}
	s += fmt.Sprintf("per %s; retry after %v", e.Limit.per(), after)
	switch {
	case errors.Is(e.Cause, context.DeadlineExceeded):
		s += ", which is past the deadline"
	case e.Cause != nil:
		s += ": " + e.Cause.Error()
	}
	return s
}

// Is reports that every LimitedError is ErrLimited.
func (e *LimitedError) Is(target error) bool { return target == ErrLimited }

func (e *LimitedError) Unwrap() error { return e.Cause }

// A StoreError means that a store failed to answer. It is ErrUnavailable. The call may have been charged.
type StoreError struct {
	Err error // the error of the store
}

// Error includes the store's error.
func (e *StoreError) Error() string {
	switch {
	case e.Err == nil:
		return ErrUnavailable.Error()
	case errors.Is(e.Err, driver.ErrRejected):
		return e.Err.Error()
	}
	return ErrUnavailable.Error() + ": " + e.Err.Error()
}

// Is reports that every StoreError is ErrUnavailable.
func (e *StoreError) Is(target error) bool { return target == ErrUnavailable }

// Unwrap returns the store's error, unless it is a context's, such as a connection's timeout: the caller did not give up.
func (e *StoreError) Unwrap() error {
	if errors.Is(e.Err, context.DeadlineExceeded) || errors.Is(e.Err, context.Canceled) {
		return nil
	}
	return e.Err
}
