package observe

import (
	"context"
	"errors"
	"slices"

	"example.com/sash"
	"example.com/sash/driver"
)

// All returns an observer that calls several, one after the other. A panic of one is dropped, and the others are called all
// the same. A nil observer is none.
func All(observers ...sash.Observer) sash.Observer {
	return all(slices.DeleteFunc(slices.Clone(observers), func(o sash.Observer) bool { return driver.Nil(o) }))
}

type all []sash.Observer

// Observe implements [sash.Observer].
func (a all) Observe(ctx context.Context, d sash.Decision) {
	for _, o := range a {
		func() {
			defer func() { _ = recover() }()
			o.Observe(ctx, d)
		}()
	}
}

// Outcomes of a decision.
const (
	allowed   = "allowed"
	refused   = "refused"
	uncounted = "uncounted"
	failed    = "error"
)

func outcome(d *sash.Decision) string {
	switch {
	case d.Err != nil:
		return failed
	case !d.Result.Allowed:
		return refused
	case d.Result.Source == sash.FromPolicy:
		return uncounted
	}
	return allowed
}

// errorType returns the class of an error.
func errorType(err error) string {
	switch {
	case errors.Is(err, sash.ErrUnavailable):
		return "unavailable"
	case errors.Is(err, context.DeadlineExceeded):
		return "deadline_exceeded"
	case errors.Is(err, context.Canceled):
		return "canceled"
	}
	return "_OTHER"
}
