package sash

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"example.com/sash/driver"
)

// inFlight prefixes the keys of a Concurrency. [Key] never returns a key with its last character.
const inFlight = "in-flight#"

// A Concurrency limits how many calls of a subject are in flight, rather than how many begin in a window. Each call holds a slot until it
// ends, or for the longest hold time if its process dies. A call that runs longer is no longer counted, so choose a hold time that no
// call outlives, or [Slot.Extend] it in time. Then at most n calls are in flight at every instant, over all processes that share the store.
//
// The limit is a sliding window as long as the hold time. A call takes its unit back from the window when it ends. So the RetryAfter of a
// refusal is an upper bound: the time until the oldest slot becomes free by itself.
//
// A Concurrency is safe for concurrent use and holds nothing that has to be closed.
type Concurrency struct {
	limiter *Limiter
	hold    time.Duration
}

// NewConcurrency returns a limit of n calls in flight for each subject. maxHold is the longest hold time, [MinWindow] to [MaxWindow].
// A nil opts is the default. A Concurrency shares no keys with limiters of the same prefix.
//
// The error is [ErrInvalidLimit], also for an algorithm that is not exact and for a [Block], because waiting callers would bring it about.
// It is [ErrUnsupported] if the store does not settle or the options charge refused calls. It does no I/O, and panics if store is nil.
func NewConcurrency(store driver.Store, opts *Options, n int64, maxHold time.Duration) (*Concurrency, error) {
	if driver.Nil(store) {
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
	if l.policy.Block.Refusals > 0 {
		return nil, fmt.Errorf("%w: a block, of a limit of calls in flight", ErrInvalidLimit)
	}
	if err := l.settles("a limit of calls in flight"); err != nil {
		return nil, err
	}
	l.prefix += inFlight
	return &Concurrency{limiter: l, hold: maxHold}, nil
}

// Do runs f if a slot is free, returns the error of f, and frees the slot, also when f panics. If no slot is
// free, f does not run and the error is a [*LimitedError], or one of those of [Limiter.AllowN].
//
// If the store fails to take back the slot, Do returns no error for that, because f has run. The slot becomes free after the hold time.
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

// Start takes a slot if one is free, for a call that ends elsewhere: [Slot.Release] gives it back. Start may get a slot before callers of
// Wait. A refusal is a Slot that is not Allowed, never an error. If the context ends before the store answers, the caller holds no slot: a
// slot that the store still grants within a second is given back. Errors are those of [Limiter.AllowN].
func (c *Concurrency) Start(ctx context.Context, key string) (*Slot, error) {
	reserved, err := c.limiter.Reserve(ctx, key, 1, nil)
	if err != nil {
		return nil, err
	}
	return &Slot{of: c, reserved: reserved}, nil
}

// Wait takes a slot as soon as one is free. Callers of one Concurrency ask in turn for each key, so share one Concurrency in a process.
// Only the first of them asks the store: whenever a slot of this Concurrency is released, and also for slots of other processes. It does
// that about a hundred times a second while slots are taken often, and once a second if the newest slot has been held for a second. There
// is no order between processes: a process that releases slots while its own callers wait mostly gets them again.
//
// If the context's deadline comes first, the error is a [*LimitedError] that is also context.DeadlineExceeded, unless the
// store has never answered. If the context is canceled, the error is the context's. Other errors are those of Start. If the
// store fails, each caller asks for itself.
func (c *Concurrency) Wait(ctx context.Context, key string) (*Slot, error) {
	one, err := c.limiter.call(key, 1)
	if err != nil {
		return nil, err
	}
	var slot *Slot
	one.waits, one.MaySettle = true, true
	a := &asker{cost: 1, policy: c.limiter.policy, hold: c.hold}
	err = c.limiter.queues.ask(ctx, key, one.Key, a, func(*policy) (Result, error) {
		reserved, err := c.limiter.reserve(ctx, driver.All, []call{one})
		if err != nil {
			return Result{}, err
		}
		slot = &Slot{of: c, reserved: reserved}
		return reserved.Result(), nil
	})
	var limited *LimitedError
	switch {
	case err == nil:
		return slot, nil
	case errors.As(err, &limited):
		limited.AtOnce = true
	case slot != nil && errors.Is(err, context.DeadlineExceeded):
		return nil, tooMany(key, slot, context.DeadlineExceeded)
	}
	return nil, err
}

// Peek reports how many slots are free, as Remaining, and takes none: see [Limiter.Peek]. ReleaseAfter of its limit is an upper bound.
func (c *Concurrency) Peek(ctx context.Context, key string) (Result, error) {
	return c.limiter.Peek(ctx, key)
}

// Reset frees all slots of a key, also those of calls that still run, and wakes the first caller that waits in this process. For a call
// that still runs, Release then frees nothing and Extend reports false. Errors are those of [Limiter.Reset].
func (c *Concurrency) Reset(ctx context.Context, key string) error { return c.limiter.Reset(ctx, key) }

// A Slot is one call in flight, or the refusal of one. It is safe for concurrent use and holds nothing that
// has to be closed. A slot that is not released becomes free after the hold time.
type Slot struct {
	of       *Concurrency
	reserved *Reservation
	mu       sync.Mutex // held while the slot is extended or released
}

// Allowed reports whether there was a slot, which is now taken.
func (s *Slot) Allowed() bool { return s.reserved.Allowed() }

// Result returns the result. Its RetryAfter is an upper bound.
func (s *Slot) Result() Result { return s.reserved.Result() }

// Release gives the slot back, and wakes the first caller of this process that waits for one. It does nothing if it was
// called before, after the hold time, or for a slot that was not taken. It tries once, for at most a second, even if ctx
// has ended. If the store fails, the error is [ErrUnavailable] and the slot becomes free after the hold time.
func (s *Slot) Release(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reserved.Release(ctx)
}

// Extend restarts the hold time, for a call that needs the slot for longer. It reports false if the slot is gone: it was not taken or
// was released, its hold time has passed, or it was reset. It tries once, for at most a second, even if ctx has ended. The error is
// [ErrUnsupported] if the store cannot extend, under SortedSetLog, or for a slot that a process granted in the store's place (package
// failover, mode Local), and [ErrUnavailable] if the store fails: then the hold time may have restarted.
func (s *Slot) Extend(ctx context.Context) (bool, error) {
	store := s.of.limiter.store
	if store.Powers()&driver.CanExtend == 0 {
		return false, fmt.Errorf("%w: Extend needs a store with driver.CanExtend", ErrUnsupported)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.reserved
	r.mu.Lock()
	set, held := r.set, !r.done && !r.decided
	r.mu.Unlock()
	if !held {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()
	at, err := extend(ctx, store, set)
	if err != nil || at == 0 {
		return false, storeError(context.Background(), err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.set.At = at
	return true, nil
}

func tooMany(key string, slot *Slot, cause error) error {
	err := limited(key, slot.Result(), cause)
	err.AtOnce = true
	return err
}

// extend moves charges to now, and returns the instant, or zero if they were not moved.
func extend(ctx context.Context, store driver.Store, sets ...driver.Settlement) (at int64, err error) {
	b := driver.Batch{Ops: make([]driver.Op, len(sets))}
	for i, set := range sets {
		b.Ops[i].Kind, b.Ops[i].Settlement = driver.Extend, set
	}
	err = store.Do(ctx, &b)
	return b.Ops[0].Answer.At, err
}
