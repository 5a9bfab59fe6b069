package sash

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// MaxSubjects is the most subjects that one decision can span.
const MaxSubjects = 4

// A Subject is one of several keys that a call is charged to, such as a client and the quota that all
// clients share.
type Subject struct {
	// Key is the subject's key.
	Key string
	// Cost is the units asked of this subject: at least 1.
	Cost int64
	// Limits are what this subject is held to. Empty means the limiter's own limits.
	Limits []Limit
}

// AllowAll asks several subjects for units, all or nothing: when every limit of every subject has room
// all are charged, otherwise none is. It is also the way to bring limits per call, for one subject or
// several, when users' plans differ.
//
// In memory, on one Redis server, and on a Redis Cluster for keys of one slot (see [KeyTogether]) this
// is one atomic step. For keys of different slots the subjects are charged one after the other, and
// given back when a later one refuses. No limit is ever exceeded, but until they are given back those
// units are missing to others; when the store fails in between they stay charged until they leave the
// window. A refusal then tells of the subject that refused, and another may refuse when its RetryAfter
// has passed. Put the subject that refuses most often first.
//
// Errors are those of AllowN, [ErrInvalidLimit] for limits that cannot be enforced or too many subjects,
// and [ErrUnsupported].
func (l *Limiter) AllowAll(ctx context.Context, subjects ...Subject) (Result, error) {
	reqs, err := l.requests(subjects)
	if err != nil {
		return Result{}, err
	}
	results, err := l.decideAll(ctx, reqs)
	if err != nil {
		return Result{}, err
	}
	return join(results), nil
}

// requests checks the subjects of one decision.
func (l *Limiter) requests(subjects []Subject) ([]Request, error) {
	if len(subjects) == 0 || len(subjects) > MaxSubjects {
		return nil, fmt.Errorf("%w: %d subjects; a decision has 1 to %d", ErrInvalidLimit, len(subjects), MaxSubjects)
	}
	reqs := make([]Request, len(subjects))
	for i, s := range subjects {
		key, err := l.key(s.Key)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(reqs[:i], func(r Request) bool { return r.Key == key }) {
			return nil, fmt.Errorf("%w: the subject %s is there twice", ErrInvalidKey, clip(s.Key))
		}
		policy := l.policy
		if len(s.Limits) > 0 {
			if policy, err = NewPolicy(&l.opts, s.Limits...); err != nil {
				return nil, err
			}
		}
		if err := policy.checkCost(s.Cost); err != nil {
			return nil, err
		}
		reqs[i] = Request{Key: key, Cost: s.Cost, Policy: policy}
	}
	return reqs, nil
}

// decideAll returns one result a request, or, where the store decides one by one, only the one that was
// refused.
func (l *Limiter) decideAll(ctx context.Context, reqs []Request) ([]Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, storeError(ctx, err)
	}
	if len(reqs) == 1 {
		res, err := l.store.Decide(ctx, reqs[0])
		if err != nil {
			return nil, storeError(ctx, err)
		}
		return []Result{res}, nil
	}
	if store, ok := l.store.(MultiStore); ok {
		results, err := store.DecideAll(ctx, reqs)
		if err == nil {
			return results, nil
		}
		if !errors.Is(err, ErrApart) {
			return nil, storeError(ctx, err)
		}
	}
	return l.oneByOne(ctx, reqs)
}

// oneByOne charges the requests in order and gives back on the first refusal.
func (l *Limiter) oneByOne(ctx context.Context, reqs []Request) ([]Result, error) {
	store, ok := l.settler()
	if !ok {
		return nil, fmt.Errorf("%w: one decision over subjects in different places", ErrUnsupported)
	}
	results := make([]Result, 0, len(reqs))
	for _, req := range reqs {
		req.MaySettle = true
		res, err := l.store.Decide(ctx, req)
		if err == nil && res.Allowed {
			results = append(results, res)
			continue
		}
		// The caller may be gone; what was charged is given back all the same.
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		var failed error
		for i, charged := range results {
			failed = errors.Join(failed, store.Settle(undo, Settlement{Request: reqs[i], Result: charged}))
		}
		if err == nil {
			err = failed
		}
		if err != nil {
			return nil, storeError(ctx, err)
		}
		return []Result{res}, nil
	}
	return results, nil
}
