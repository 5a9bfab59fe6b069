package sash

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"example.com/sash/driver"
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
// store's clock, over all processes that share the store. After more than [MaxEntries] calls within a
// hold time, the slot of one whose process died can stay taken for longer.
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
// store does not settle or the options charge refused calls. It does no I/O. It panics if store is nil.
func NewConcurrency(store driver.Store, opts *Options, n int64, maxHold time.Duration) (*Concurrency, error) {
	if store == nil {
		panic("sash: NewConcurrency needs a store, such as memstore.New(nil)")
	}
	limit := Every(n, maxHold)
	limit.Name = fmt.Sprintf("%d at once", n)
	l, err := New(store, opts, limit)
	if err != nil {
		return nil, err
	}
	if !l.policy.Algorithm.Exact() {
		return nil, fmt.Errorf("%w: algorithm %v lets more than %d calls be in flight", ErrInvalidLimit, l.policy.Algorithm, n)
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
	defer func() { _ = slot.Release(ctx) }()
	return f(ctx)
}

// Start takes a slot if one is free, for a call that ends elsewhere: [Slot.Release] gives it back. A refusal
// is a Slot that is not Allowed, never an error. A caller whose context ends before the store has answered
// holds no slot: one that is still taken for him, for up to a second, is given back. Errors are those of
// [Limiter.AllowN].
func (c *Concurrency) Start(ctx context.Context, key string) (*Slot, error) {
	reserved, err := c.limiter.Reserve(ctx, key, 1)
	if err != nil {
		return nil, err
	}
	return &Slot{reserved}, nil
}

// Wait takes a slot as soon as it sees one free. Nobody can know when that is, so it asks again and
// again: after a few milliseconds at first, about every second in the end, and when the slot that is
// held longest frees itself. Of several that wait, any one wins.
//
// When the context's deadline comes first the error is a [*LimitedError] that is also
// context.DeadlineExceeded, unless the store has not answered even once; when it is cancelled, the context's
// error. Other errors are those of Start.
func (c *Concurrency) Wait(ctx context.Context, key string) (*Slot, error) {
	var refused *Slot
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		slot, err := c.Start(ctx, key)
		if err == nil {
			if slot.Allowed() {
				return slot, nil
			}
			refused = slot
			jittered := pause/2 + rand.N(pause/2)
			err = sleep(ctx, min(jittered, slot.Result().RetryAfter))
		}
		switch {
		case err == nil:
		case refused != nil && errors.Is(err, context.DeadlineExceeded):
			return nil, tooMany(key, refused, context.DeadlineExceeded)
		default:
			return nil, err
		}
	}
}

// A Slot is one call in flight, or the refusal of one. It is safe for concurrent use and holds nothing that
// has to be closed; what is not released frees itself when the hold time is over.
type Slot struct {
	reserved *Reservation
}

// Allowed reports whether there was a slot, which is now taken.
func (s *Slot) Allowed() bool { return s.reserved.Allowed() }

// Result returns the answer. What it calls RetryAfter is an upper bound.
func (s *Slot) Result() Result { return s.reserved.Result() }

// Release gives the slot back. Called again it does nothing, and neither does it after the hold time or for a
// slot that was not taken. The store is told once, also when ctx has ended, for at most a second. When it
// fails, the error is [ErrUnavailable] and the slot frees itself when the hold time is over.
func (s *Slot) Release(ctx context.Context) error { return s.reserved.Release(ctx) }

func tooMany(key string, slot *Slot, cause error) error {
	by, _ := slot.Result().RefusedBy()
	return &LimitedError{Key: key, Limit: by.Limit, Result: slot.Result(), AtOnce: true, Cause: cause}
}
