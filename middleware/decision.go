package middleware

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"example.com/sash"
)

// A Decision is the answer to one request in the layers that apply to it. It is not safe for concurrent use.
type Decision[R any] struct {
	// Result is the result over all layers.
	Result sash.Result

	gate    *Gate[R]
	request R
	claims  []claim[R]
	held    []*sash.Reservation // one for each claim if any claim is settled afterwards, or none
}

// Limited reports whether any layer applies to the request.
func (d *Decision[R]) Limited() bool { return len(d.claims) > 0 }

// Held reports whether the request holds charges that [Decision.Settle] can release.
func (d *Decision[R]) Held() bool { return d.held != nil }

// Charges reports whether a layer with that charge applies to the request.
func (d *Decision[R]) Charges(charge Charge) bool {
	return slices.ContainsFunc(d.claims, func(c claim[R]) bool { return c.layer.Charge == charge })
}

// LayerOf returns the layer of the limit at index i. The limits are those of the Result.
func (d *Decision[R]) LayerOf(limits []sash.LimitResult, i int) *Layer[R] {
	subject, last := 0, 0
	for j := 1; j < len(limits); j++ {
		if limits[j].Key != limits[j-1].Key {
			if last++; j <= i {
				subject++
			}
		}
	}
	if last == len(d.claims)-1 {
		return d.claims[subject].layer
	}
	// A store that decides subjects one by one reports only the one that refused. Its key has the limiter's prefix.
	matches := func(c claim[R]) int {
		if !strings.HasSuffix(limits[i].Key, c.subject.Key) {
			return 0
		}
		return len(c.subject.Key)
	}
	return slices.MaxFunc(d.claims, func(a, b claim[R]) int { return matches(a) - matches(b) }).layer
}

// Settle releases the request's charges that its outcome does not keep, all at once, even if ctx has ended. It
// returns within the time for a decision. A slower release continues in the background, for a second in all.
// Call Settle once, when the handler has returned or panicked.
func (d *Decision[R]) Settle(ctx context.Context, outcome Outcome) {
	if !d.Held() {
		return
	}
	limiter, opts, r := d.gate.limiter, &d.gate.opts, d.request
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), defaultTimeout)
	var releases sync.WaitGroup
	for i, c := range d.claims {
		release := d.held[i].Release // not Settle, which leaves a mark in the store that only repetitions need
		switch {
		case c.layer.Charge == Requests, c.layer.Charge == Failures && outcome == Failed:
			continue
		case c.layer.ResetOnSuccess && outcome == Succeeded:
			release = func(ctx context.Context) error { return limiter.Reset(ctx, c.subject.Key) } // its own charge too
		}
		releases.Go(func() {
			if err := release(ctx); err != nil && opts.OnError != nil {
				opts.OnError(r, err)
			}
		})
	}
	waiting, end := context.WithTimeout(ctx, cmp.Or(max(opts.Timeout, 0), defaultTimeout))
	go func() {
		releases.Wait()
		end()
		cancel()
	}()
	<-waiting.Done()
}

// defaultTimeout is the longest that a decision or a release may take, even after the client has left.
const defaultTimeout = time.Second

// RetryAfter returns how long a client should wait after a failure of the store: a random 5 to 10 seconds, so that clients
// that failed together do not return together.
func RetryAfter() time.Duration { return 5*time.Second + rand.N(5*time.Second+1) }

// A FuncError is an error of a function that the application gave to a middleware, such as a [KeyFunc]. It
// never means that the store failed, whatever it wraps.
type FuncError struct{ Err error }

// Error returns the function's error.
func (e *FuncError) Error() string { return e.Err.Error() }

// Unwrap returns the function's error.
func (e *FuncError) Unwrap() error { return e.Err }

// A Failure says why there is no decision on a request, and who has to act.
type Failure uint8

// The failures.
const (
	Fault       Failure = iota // a key function, a cost or a limit is wrong: the application has to be fixed
	NoKey                      // the request does not identify its subject: the client has to change it
	BadKey                     // the key is ambiguous or malformed: the client has to change it
	TooCostly                  // the cost is above a limit's units: the client has to make the request smaller
	StoreFailed                // the store failed: FailOpen decides
)

// FailureOf classifies the error of [Gate.Decide] or a limiter.
func FailureOf(err error) Failure {
	_, isFunc := errors.AsType[*FuncError](err)
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
