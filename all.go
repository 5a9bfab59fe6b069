package sash

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"example.com/sash/driver"
)

// A Subject is one of several keys that a call is charged to, such as a client and the quota that all
// clients share.
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
// In memory, on one Redis server, and on a Redis Cluster for keys of one slot (see [KeyTogether]) this is one
// atomic step. Keys of different slots are looked at first and then charged one after the other, in the order of
// the keys, whatever the order of the subjects; units are given back if another call takes the room of a later subject
// in between, the store fails, or the caller leaves. No limit is ever exceeded, but until they are given back those units
// are missing to other callers. If the store fails then or the caller's process ends in between, they stay charged until
// they leave the window. The result of a refusal is that of the subject that refused, and another subject may refuse
// after its RetryAfter.
//
// Errors are those of AllowN, [ErrInvalidLimit] for limits that cannot be enforced or too many subjects,
// and [ErrUnsupported].
func (l *Limiter) AllowAll(ctx context.Context, subjects ...Subject) (Result, error) {
	if len(subjects) == 1 {
		c, err := l.call(&subjects[0], false)
		if err != nil {
			return Result{}, err
		}
		return l.decideOne(ctx, c)
	}
	calls, err := l.calls(subjects, false)
	if err != nil {
		return Result{}, err
	}
	results, err := l.decideAll(ctx, calls)
	if err != nil {
		return Result{}, err
	}
	return join(results), nil
}

// A call is a request with the limits behind its policy.
type call struct {
	driver.Request
	policy *policy
	kind   driver.Kind
	id     string    // of a call that may be repeated
	waits  bool      // the caller waits
	asked  time.Time // of a call that books, before the store was asked
}

// newCall makes a call that was checked.
func newCall(key string, cost int64, p *policy, maySettle bool) call {
	return call{Request: driver.Request{Key: key, Cost: cost, Policy: &p.Policy, MaySettle: maySettle}, policy: p}
}

// calls checks the subjects of one decision.
func (l *Limiter) calls(subjects []Subject, maySettle bool) ([]call, error) {
	if len(subjects) == 0 || len(subjects) > MaxSubjects {
		return nil, fmt.Errorf("%w: %d subjects; a decision has 1 to %d", ErrInvalidLimit, len(subjects), MaxSubjects)
	}
	calls := make([]call, len(subjects))
	for i := range subjects {
		c, err := l.call(&subjects[i], maySettle)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(calls[:i], func(earlier call) bool { return earlier.Key == c.Key }) {
			return nil, fmt.Errorf("%w: the subject %s appears twice", ErrInvalidKey, clip(subjects[i].Key))
		}
		calls[i] = c
	}
	return calls, nil
}

// call checks a subject.
func (l *Limiter) call(s *Subject, maySettle bool) (call, error) {
	key, err := l.key(s.Key)
	if err != nil {
		return call{}, err
	}
	policy, err := l.policyOf(s)
	if err != nil {
		return call{}, err
	}
	if err := policy.checkCost(s.Cost); err != nil {
		return call{}, err
	}
	return newCall(key, s.Cost, policy, maySettle), nil
}

// decideOne decides a call on one subject.
func (l *Limiter) decideOne(ctx context.Context, c call) (res Result, err error) {
	if err := ctx.Err(); err != nil {
		return Result{}, storeError(ctx, err)
	}
	if l.opts.Observer != nil {
		at := time.Now()
		defer func() { l.observe(ctx, at, []call{c}, []Result{res}, err) }()
	}
	began, err := l.pace.begin(ctx, l.store, c.Key, c.Policy)
	if err != nil {
		return Result{}, err
	}
	res, err = l.decide(ctx, c)
	l.pace.end(ctx, began, err)
	return res, err
}

// decideAll returns one result a call. If the store decides one by one, it returns only the refusal.
func (l *Limiter) decideAll(ctx context.Context, calls []call) (results []Result, err error) {
	if len(calls) == 1 {
		res, err := l.decideOne(ctx, calls[0])
		if err != nil {
			return nil, err
		}
		return []Result{res}, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, storeError(ctx, err)
	}
	if l.opts.Observer != nil {
		at := time.Now()
		defer func() { l.observe(ctx, at, calls, results, err) }()
	}
	began, err := l.pace.begin(ctx, l.store, calls[0].Key, calls[0].Policy)
	if err != nil {
		return nil, err
	}
	b := driver.Batch{Ops: make([]driver.Op, len(calls))}
	for i := range calls {
		b.Ops[i].Request = calls[i].Request
	}
	err = b.Do(ctx, l.store)
	l.pace.end(ctx, began, err)
	if err == nil {
		results := make([]Result, len(calls))
		for i := range calls {
			results[i] = resultOf(calls[i].Key, calls[i].policy, &b.Ops[i].Answer)
		}
		return results, nil
	}
	if !errors.Is(err, driver.ErrApart) {
		return nil, storeError(ctx, err)
	}
	if calls[0].Within > 0 { // one instant for all cannot be found one after the other
		return nil, fmt.Errorf("%w: one booking of subjects in different places; see KeyTogether", ErrUnsupported)
	}
	return l.decideApart(ctx, calls, b.Ops)
}

// decideApart decides calls that the store cannot decide in one step.
func (l *Limiter) decideApart(ctx context.Context, calls []call, ops []driver.Op) ([]Result, error) {
	if err := l.settles("one decision over subjects in different places"); err != nil {
		return nil, err
	}
	var steps [][]driver.Op
	for i := range ops {
		steps = append(steps, ops[i:i+1])
	}
	admitted, err := driver.DecideInSteps(ctx, l.store, steps...)
	if err != nil {
		return nil, storeError(ctx, err)
	}
	var results []Result
	for i := range calls {
		if answer := &ops[i].Answer; admitted || len(answer.Statuses()) > 0 {
			results = append(results, resultOf(calls[i].Key, calls[i].policy, answer))
		}
	}
	return results, nil
}

// settlement returns the settlement that gives back the whole charge of an admitted call.
func (c *call) settlement(res *Result) driver.Settlement {
	return driver.Settlement{Request: c.Request, At: res.At.UnixMicro(), Delay: res.Delay.Microseconds(), Source: res.Source}
}
