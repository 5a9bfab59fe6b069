package sash

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// How long Concurrency.Wait pauses between two questions. Pauses double, so that a long wait costs the
// store little, and are cut at random, so that waiters do not come in step.
const (
	firstPause   = 10 * time.Millisecond
	longestPause = time.Second
)

// inFlight stands before the keys of a Concurrency. Its last character is in no key that [Key] builds.
const inFlight = "in-flight#"

// A Concurrency bounds how many calls of a subject are in flight, rather than how many begin in a time.
// Each holds a slot until it ends. A call whose process dies gives its slot back when the longest hold
// time is over. A call that runs longer than that is no longer counted, so choose a hold time that no
// call outlives, and end calls that would: with it, at most n are in flight at every instant on the
// store's clock, over all processes that share the store.
//
// It is a sliding window as long as the hold time, out of which a call takes its unit when it ends. So
// what a refusal calls RetryAfter is an upper bound: the time until the slot that is held longest frees
// itself. Most come free long before.
//
// A Concurrency is safe for concurrent use and holds nothing that has to be closed.
type Concurrency struct {
	limiter *Limiter
}

// NewConcurrency returns a limit of n calls in flight for each subject, with a longest hold time of
// [MinWindow] to [MaxWindow] for a call. A nil opts is the default. Its keys are apart from those of
// limiters with the same prefix.
//
// The error is [ErrInvalidLimit], also for an algorithm that is not exact, and [ErrUnsupported] when the
// store does not settle or the options charge refused calls. It does no I/O.
func NewConcurrency(store Store, opts *Options, n int64, maxHold time.Duration) (*Concurrency, error) {
	limit := Every(n, maxHold)
	limit.Name = fmt.Sprintf("%d at once", n)
	l, err := New(store, opts, limit)
	if err != nil {
		return nil, err
	}
	if !l.policy.algorithm.Exact() {
		return nil, fmt.Errorf("%w: algorithm %v lets more than %d calls be in flight", ErrInvalidLimit, l.policy.algorithm, n)
	}
	if _, ok := l.settler(); !ok {
		return nil, fmt.Errorf("%w: a limit of calls in flight", ErrUnsupported)
	}
	l.prefix += inFlight
	return &Concurrency{limiter: l}, nil
}

// Do runs f if a slot is free, returns what f returns, and frees the slot, also when f panics. Otherwise
// f does not run and the error is a [*LimitedError], or one of those of [Limiter.AllowN].
//
// A slot that cannot be given back because the store fails is no error of Do: f has run. It frees itself
// when the hold time is over.
func (c *Concurrency) Do(ctx context.Context, key string, f func(context.Context) error) error {
	slot, err := c.Start(ctx, key)
	if err != nil {
		return err
	}
	if !slot.Allowed() {
		return tooMany(key, slot, nil)
	}
	defer func() { _ = slot.Cancel(ctx) }()
	return f(ctx)
}

// Start takes a slot if one is free, for a call that ends elsewhere: Cancel of the Reservation, called
// once or several times, gives it back. A refusal is a Reservation that is not Allowed, never an error.
// Errors are those of [Limiter.AllowN].
func (c *Concurrency) Start(ctx context.Context, key string) (*Reservation, error) {
	return c.limiter.Reserve(ctx, key, 1)
}

// Wait takes a slot as soon as it sees one free. Nobody can know when that is, so it asks again and
// again: after a few milliseconds at first, about every second in the end, and when the slot that is
// held longest frees itself. Of several that wait, any one wins.
//
// When the context's deadline comes first the error is a [*LimitedError] that is also
// context.DeadlineExceeded; when it is cancelled, the context's error. Other errors are those of Start.
func (c *Concurrency) Wait(ctx context.Context, key string) (*Reservation, error) {
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		slot, err := c.Start(ctx, key)
		if err != nil || slot.Allowed() {
			return slot, err
		}
		jittered := pause/2 + rand.N(pause/2)
		if err := sleep(ctx, min(jittered, slot.Result().RetryAfter)); err != nil {
			if errors.Is(err, context.DeadlineExceeded) {
				return nil, tooMany(key, slot, context.DeadlineExceeded)
			}
			return nil, err
		}
	}
}

func tooMany(key string, slot *Reservation, cause error) error {
	by, _ := slot.Result().RefusedBy()
	return &LimitedError{Key: key, Limit: by.Limit, Result: slot.Result(), AtOnce: true, Cause: cause}
}
