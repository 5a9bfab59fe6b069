package sash

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"example.com/sash/driver"
	"example.com/sash/internal/apart"
)

// A Subject is one of several keys that a call is charged to, such as a client and the quota that all clients share.
type Subject struct {
	// Key is the subject's key.
	Key string
	// Cost is the units to charge to this subject: at least 1.
	Cost int64
	// Limits are the limits of this subject. Empty means the limiter's own limits.
	Limits []Limit
}

// AllowAll charges several subjects, all or nothing: if every limit of every subject has room, all are charged,
// otherwise none is. It also takes limits per call, for one subject or several, for users on different plans.
//
// In memory, on one Redis server, and on a Redis Cluster for keys of one slot (see [KeyTogether]) this is one atomic step. Keys of
// different slots are looked at and then charged one after the other. If one of them has no room by then, the store fails or the caller
// leaves, AllowAll gives the units back. No limit is ever exceeded, but other callers miss those units until then, and for a whole
// window if the store fails again or the process ends. After a refusal, another subject may refuse once RetryAfter has passed.
//
// Errors are those of AllowN, [ErrInvalidLimit] for limits that cannot be enforced or too many subjects, and [ErrUnsupported].
func (l *Limiter) AllowAll(ctx context.Context, subjects ...Subject) (Result, error) {
	var room [2]call // enough for most, without an allocation
	calls, err := l.calls(room[:0], driver.All, subjects)
	if err == nil {
		calls, err = l.decide(ctx, driver.All, calls)
	}
	if err != nil {
		return Result{}, err
	}
	return combine(calls), nil
}

// AllowAny charges one of several subjects, the one with most room, such as the credentials of a pool that each have a
// quota of their own. It returns the index of that subject and its result. After a refusal no subject was charged, and
// AllowAny returns the subject with the shortest RetryAfter.
//
// A subject's room is the share of a limit's units that would be left after the call: the smallest share of its limits. Of more than 8
// subjects, AllowAny compares 8, beginning at a random one, and goes on to the next ones as long as none of them has room. It passes over
// subjects with a limit below their cost, and subjects that the store rejects, such as a Redis key that holds something else.
//
// In memory, on one Redis server, and on a Redis Cluster for keys of one slot (see [KeyTogether]) this is one atomic step. Keys of
// different slots are first looked at concurrently. A call is then refused if each subject was without room when looked at, and another
// subject may have room before RetryAfter has passed. At most one subject is charged.
//
// Errors are those of AllowAll, and [ErrUnsupported] for a limiter that charges refused calls. The index is -1 then.
func (l *Limiter) AllowAny(ctx context.Context, subjects ...Subject) (int, Result, error) {
	if l.policy.CountRefused {
		return -1, Result{}, countRefusedError{"AllowAny"}
	}
	calls, err := l.calls(nil, driver.Any, subjects)
	if err == nil {
		calls, err = l.decide(ctx, driver.Any, calls)
	}
	if err != nil {
		return -1, Result{}, err
	}
	return calls[0].index, calls[0].result, nil
}

// A call is a request with the limits behind its policy, and its result.
type call struct {
	driver.Request
	policy *policy
	kind   driver.Kind
	id     string    // names a call that may be repeated
	index  int       // among the subjects
	waits  bool      // the caller waits
	asked  time.Time // when a call that may be booked was made, before it was sent to the store
	result Result
}

func newCall(key string, cost int64, p *policy) call {
	return call{Request: driver.Request{Key: key, Cost: cost, Policy: &p.Policy}, policy: p}
}

// call returns a call on a subject under the limiter's own limits, or an error if the key or the cost is invalid.
func (l *Limiter) call(key string, cost int64) (call, error) {
	if err := l.policy.checkCost(cost); err != nil {
		return call{}, err
	}
	key, err := l.key(key)
	return newCall(key, cost, l.policy), err
}

// book lets the call be booked within a time.
func (c *call) book(within time.Duration) {
	c.Within, c.asked = max(0, min(within.Microseconds(), driver.MaxAhead)), time.Now()
}

// calls checks the subjects of one decision and appends their calls. A choice begins at a random subject, without those never chargeable.
func (l *Limiter) calls(calls []call, mode driver.Mode, subjects []Subject) ([]call, error) {
	n, most, first := len(subjects), MaxSubjects, 0
	if mode == driver.Any {
		most = MaxAny
	}
	if n == 0 || n > most {
		return nil, fmt.Errorf("%w: %d subjects; a decision has 1 to %d", ErrInvalidLimit, n, most)
	}
	if mode == driver.Any {
		first = rand.IntN(n)
	}
	calls, seen := slices.Grow(calls, n), make(map[string]bool)
	var never error
	for i := range n {
		index := (first + i) % n
		s := &subjects[index]
		key, err := l.key(s.Key)
		if err != nil {
			return nil, err
		}
		if n > 1 && seen[key] {
			return nil, fmt.Errorf("%w: the subject %s appears twice", ErrInvalidKey, clip(s.Key))
		}
		seen[key] = true
		p := l.policy
		if len(s.Limits) > 0 {
			if p, err = l.plans.of(&l.opts, s.Limits); err != nil {
				return nil, err
			}
		}
		if err := p.checkCost(s.Cost); mode == driver.Any && errors.Is(err, ErrCostAboveLimit) {
			never = err
			continue
		} else if err != nil {
			return nil, err
		}
		c := newCall(key, s.Cost, p)
		c.index = index
		calls = append(calls, c)
	}
	if len(calls) == 0 {
		return nil, never
	}
	return calls, nil
}

func (l *Limiter) one(ctx context.Context, c call) (Result, error) {
	calls, err := l.decide(ctx, driver.All, []call{c})
	if err != nil {
		return Result{}, err
	}
	return calls[0].result, nil
}

// decide has the store carry out calls together, and returns them with their results. It returns only the chosen call, or only the refused
// call after a refusal in several steps.
func (l *Limiter) decide(ctx context.Context, mode driver.Mode, calls []call) (decided []call, err error) {
	if err := ctx.Err(); err != nil {
		return nil, storeError(ctx, err)
	}
	decides := calls[0].kind == driver.Charge && calls[0].Cost > 0 && !calls[0].Forced
	if decides && l.opts.Observer != nil {
		at := time.Now()
		defer func() { l.observe(ctx, at, mode, calls, decided, err) }()
	}
	var began time.Time
	if decides && calls[0].id == "" { // a call that may be repeated is sent in any case
		if began, err = l.pace.begin(ctx, l.store, calls[0].Key, calls[0].Policy); err != nil {
			return nil, err
		}
	}
	b := batchOf(mode, calls)
	err = b.Do(ctx, l.store)
	steps := errors.Is(err, driver.ErrApart)
	if steps && mode == driver.Any {
		err = apart.Choose(ctx, l.store, b)
	}
	l.pace.end(ctx, began, err)
	if steps && mode == driver.All {
		err = l.decideApart(ctx, b)
	}
	if err != nil {
		return nil, storeError(ctx, err)
	}
	ops := b.Ops
	if mode == driver.Any {
		ops, calls = ops[b.Chosen:][:1], calls[b.Chosen:][:1]
	}
	for i := range calls {
		calls[i].result.read(calls[i].Key, calls[i].policy, &ops[i].Answer)
	}
	if decided = calls; steps && mode == driver.All {
		decided = nil
		for i := range calls {
			if len(ops[i].Answer.Statuses()) > 0 {
				decided = append(decided, calls[i])
			}
		}
	}
	if len(b.Ops) == 1 {
		batches.Put(b)
	}
	return decided, nil
}

// decideApart decides calls that the store cannot decide in one step. Calls that a refusal leaves undecided have no statuses.
func (l *Limiter) decideApart(ctx context.Context, b *driver.Batch) error {
	if b.Ops[0].Within > 0 { // deciding one after the other cannot find one instant for all
		return fmt.Errorf("%w: one booking of subjects in different places; see KeyTogether", ErrUnsupported)
	}
	if err := l.settles("one decision over subjects in different places"); err != nil {
		return err
	}
	var steps [][]driver.Op
	for i := range b.Ops {
		steps = append(steps, b.Ops[i:i+1])
	}
	_, err := apart.Decide(ctx, l.store, steps...)
	return err
}

// batches are batches of one operation. No store keeps any part of a batch, so a decision reuses one and allocates none.
var batches = sync.Pool{New: func() any { return &driver.Batch{Ops: make([]driver.Op, 1)} }}

// batchOf returns the batch of calls.
func batchOf(mode driver.Mode, calls []call) *driver.Batch {
	var b *driver.Batch
	if len(calls) == 1 {
		b = batches.Get().(*driver.Batch)
	} else {
		b = &driver.Batch{Ops: make([]driver.Op, len(calls))}
	}
	b.Mode, b.Chosen = mode, 0
	for i := range calls {
		c, op := &calls[i], &b.Ops[i]
		*op = driver.Op{}
		op.Kind, op.Request, op.ID = c.kind, c.Request, c.id
	}
	return b
}
