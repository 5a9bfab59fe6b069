package sash

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"example.com/sash/driver"
	"example.com/sash/internal/apart"
)

// A Limiter enforces limits on subjects, with a store. Most callers use [Limiter.Allow]; jobs that can wait use
// [Limiter.Wait]. A Limiter is safe for concurrent use, holds nothing that has to be closed, and is
// cheap: users on different plans can have a Limiter each, on the same store.
type Limiter struct {
	store  driver.Store
	prefix string
	opts   Options
	policy *policy
	pace   *pace
	queues *queues
	left   *apart.Left // calls whose callers left before the store decided
	plans  *policies
}

// Options are the options of a Limiter. The zero value is the default.
type Options struct {
	// Prefix keeps the keys of one part of an application apart from those of others. It is added before every key,
	// with a colon, as a part of [Key]. Limiters that share a store, a prefix and an algorithm share the charges of
	// a key, so that a user who changes plans keeps them.
	Prefix string
	// Algorithm says how windows are counted. Zero is SlidingLog.
	Algorithm Algorithm
	// Resolution is the step of SlidingBuckets, which must have one: whole microseconds. Zero otherwise.
	Resolution time.Duration
	// CountRefused charges refused calls too, so that a caller that never stops is never admitted.
	CountRefused bool
	// Block keeps out, for a time, subjects that are refused too often. The zero Block keeps none out.
	Block Block
	// Observer is called with each decision. Nil is none, and costs nothing.
	Observer Observer
}

// New returns a limiter that enforces all the given limits on every subject. A nil opts is the default.
// The error is [ErrInvalidLimit], for limits and options that cannot be enforced, or [ErrUnsupported], for a Block that
// the store does not keep. New does no I/O. It panics if store is nil.
func New(store driver.Store, opts *Options, limits ...Limit) (*Limiter, error) {
	if driver.Nil(store) {
		panic("sash: New needs a store, such as memstore.New(nil)")
	}
	opts = cmp.Or(opts, &Options{})
	policy, err := newPolicy(opts, limits)
	if err != nil {
		return nil, err
	}
	if policy.Block.Refusals > 0 && store.Powers()&driver.CanBlock == 0 {
		return nil, fmt.Errorf("%w: Options.Block needs a store with driver.CanBlock", ErrUnsupported)
	}
	if opts.Observer != nil && driver.Nil(opts.Observer) {
		return nil, fmt.Errorf("%w: Options.Observer is a nil %T, which observes nothing", ErrInvalidLimit, opts.Observer)
	}
	l := &Limiter{store: store, opts: *opts, policy: policy}
	l.pace, l.queues, l.left, l.plans = new(pace), new(queues), new(apart.Left), new(policies)
	if opts.Prefix != "" {
		l.prefix = Key(opts.Prefix) + ":"
	}
	return l, nil
}

// With returns a limiter with the same store, options and charges, and other limits, for another plan. The error is [ErrInvalidLimit].
func (l *Limiter) With(limits ...Limit) (*Limiter, error) {
	with, err := New(l.store, &l.opts, limits...)
	if err != nil {
		return nil, err
	}
	with.pace, with.queues, with.left, with.plans = l.pace, l.queues, l.left, l.plans
	return with, nil
}

// Limits returns the limits of every subject. The caller must not change them.
func (l *Limiter) Limits() []Limit { return l.policy.named }

// Policy returns the limits in the form that stores take, for programs that call a store directly. The caller must not change it.
func (l *Limiter) Policy() *driver.Policy { return &l.policy.Policy }

// Result converts a store's answer for a key under Policy.
func (l *Limiter) Result(key string, answer driver.Answer) (r Result) {
	r.read(key, l.policy, &answer)
	return r
}

// Allow requests one unit: AllowN with a cost of 1.
func (l *Limiter) Allow(ctx context.Context, key string) (Result, error) {
	return l.AllowN(ctx, key, 1)
}

// AllowN requests cost units for a subject. If every limit has room, the call is admitted and charged to all limits;
// otherwise nothing is charged. A refusal is a Result that is not Allowed, never an error.
//
// A call with less time than the store usually takes is not sent, because it would most likely be charged without being
// admitted: it waits for its deadline. Meanwhile the limiter looks at the store, in case the store is faster now. The last
// look may take up to a second longer than the call.
//
// Errors are [ErrInvalidKey], [ErrInvalidCost], [ErrCostAboveLimit], [ErrUnavailable], or the context's.
func (l *Limiter) AllowN(ctx context.Context, key string, cost int64) (res Result, err error) {
	if err := l.policy.checkCost(cost); err != nil {
		return Result{}, err
	}
	if key, err = l.key(key); err != nil {
		return Result{}, err
	}
	if err := ctx.Err(); err != nil {
		return Result{}, storeError(ctx, err)
	}
	if l.opts.Observer != nil {
		return l.one(ctx, newCall(key, cost, l.policy))
	}
	// This is decide for one call, written out: it copies less and takes half the time.
	began, err := l.pace.begin(ctx, l.store, key, &l.policy.Policy)
	if err != nil {
		return Result{}, err
	}
	b := batches.Get().(*driver.Batch)
	b.Mode, b.Chosen = driver.All, 0
	op, answer := &b.Ops[0], &b.Ops[0].Answer
	*op = driver.Op{}
	op.Key, op.Cost, op.Policy = key, cost, &l.policy.Policy
	err = l.store.Do(ctx, b)
	l.pace.end(ctx, began, err)
	if err == nil {
		err = answer.Check(&l.policy.Policy)
	}
	if err != nil {
		return Result{}, storeError(ctx, err)
	}
	res.read(key, l.policy, answer)
	batches.Put(b)
	return res, nil
}

// Peek reports the units left for a subject and charges nothing: see Remaining, and ReleaseAfter of each limit. Peek requests no units. So
// it is Allowed even if none are left, unless a limit is already exceeded because it was lowered or because refused calls are charged.
func (l *Limiter) Peek(ctx context.Context, key string) (Result, error) {
	key, err := l.key(key)
	if err != nil {
		return Result{}, err
	}
	return l.one(ctx, newCall(key, 0, l.policy))
}

// Do runs f if there is room for one unit, and returns what f returns. Otherwise the error is a [*LimitedError], or one of AllowN.
func (l *Limiter) Do(ctx context.Context, key string, f func(context.Context) error) error {
	res, err := l.Allow(ctx, key)
	if err != nil {
		return err
	}
	if !res.Allowed {
		return limited(key, res, nil)
	}
	return f(ctx)
}

// Reset forgets the charges of a subject under this limiter's algorithm, and ends its block. Callers who wait keep their
// places, but the store has forgotten these: until they are over, it may admit as many units again. The error is
// [ErrUnsupported] if the store cannot reset, which Reset checks first, or one of those of AllowN.
func (l *Limiter) Reset(ctx context.Context, key string) error {
	if l.store.Powers()&driver.CanForget == 0 {
		return fmt.Errorf("%w: Reset needs a store with driver.CanForget", ErrUnsupported)
	}
	key, err := l.key(key)
	if err != nil {
		return err
	}
	c := newCall(key, 0, l.policy)
	c.kind = driver.Forget
	_, err = l.one(ctx, c)
	l.queues.give(key, gap{}, false) // only to askers: the store has forgotten all places
	return err
}

func (l *Limiter) key(key string) (string, error) {
	if !names(key) {
		return "", fmt.Errorf("%w: it is empty, blank or made of empty parts, and every caller would share it", ErrInvalidKey)
	}
	if l.prefix != "" {
		key = l.prefix + key
	}
	if len(key) > MaxKeyLength {
		return "", fmt.Errorf("%w: %d bytes, more than %d; build it with sash.Key", ErrInvalidKey, len(key), MaxKeyLength)
	}
	return key, nil
}

func limited(key string, res Result, cause error) *LimitedError {
	by, _ := res.RefusedBy()
	return &LimitedError{Key: key, Limit: by.Limit, Result: res, Cause: cause}
}

// storeError returns the error of a store call: the context's error if the caller gave up, an error about the call, or ErrUnavailable.
func storeError(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		gone := ctx.Err()
		if cause := context.Cause(ctx); !errors.Is(gone, cause) {
			gone = fmt.Errorf("%w: %w", gone, cause)
		}
		if errors.Is(err, ctx.Err()) && strings.HasSuffix(err.Error(), ctx.Err().Error()) { // it adds nothing
			return fmt.Errorf("sash: %w", gone)
		}
		return fmt.Errorf("sash: %w (%v)", gone, err)
	case errors.Is(err, ErrUnavailable), errors.Is(err, ErrUnsupported), errors.Is(err, ErrCostAboveLimit):
		return err
	}
	return &StoreError{Err: err}
}
