package sash

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"example.com/sash/driver"
)

// AllowAny charges one of several subjects, such as the credentials of a pool that each have a quota of their own: the
// one with most room. It returns the index of that subject, and its result. After a refusal that is the subject with
// the shortest RetryAfter, and no subject was charged.
//
// A subject's room is the share of a limit's units that would be left after the call, of its limit with the smallest
// share; of subjects with equal room any one is charged. So a pool is used evenly, and a large call finds room for as
// long as possible. Of more than [AnyGroup] subjects it compares that many, beginning at a random one, and goes on to
// the next as long as none of them has room. A call is refused only if no subject has room. Subjects whose limits are
// all below their cost are passed over, and so are subjects that the store rejects, such as a Redis key that holds something else:
// the error is theirs only if there is no other.
//
// In memory, on one Redis server, and on a Redis Cluster for keys of one slot (see [KeyTogether]) this is one atomic step.
// Keys of different slots are looked at concurrently first. Then a call is refused only if every subject was seen
// without room, if only for a moment, and another subject may have room before its RetryAfter. At most one is charged.
//
// Errors are those of AllowN, [ErrInvalidLimit] for limits that cannot be enforced or too many subjects, and
// [ErrUnsupported], which comes first, for a limiter that charges refused calls. The index is -1 then.
func (l *Limiter) AllowAny(ctx context.Context, subjects ...Subject) (int, Result, error) {
	if l.policy.CountRefused {
		return -1, Result{}, countRefusedError{"AllowAny"}
	}
	choice, err := l.choice(subjects, false)
	if err != nil {
		return -1, Result{}, err
	}
	chosen, res, err := l.decideAny(ctx, choice)
	if err != nil {
		return -1, Result{}, err
	}
	return choice[chosen].index, res, nil
}

// ReserveAny is AllowAny for a charge that is settled later: see [Limiter.Reserve]. After a refusal there is nothing to
// settle. If the caller's context ends first, a later admission is given back.
//
// Errors are those of AllowAny. [ErrUnsupported] also means that the store does not settle.
func (l *Limiter) ReserveAny(ctx context.Context, subjects ...Subject) (int, *Reservation, error) {
	if err := l.settles("ReserveAny"); err != nil {
		return -1, nil, err
	}
	return l.holdAny(ctx, 0, subjects)
}

// BookAny books the one of several subjects that admits the call first: now the one with most room, as AllowAny, or later
// the one whose queue is shortest. Callers stand in line for each subject: see [Limiter.Book], which has the meaning of
// within.
//
// For keys of different slots, and on Redis under limits of the calendar, the subject is chosen by looks, and another one
// may have been free earlier.
//
// Errors are those of ReserveAny. [ErrUnsupported] also means that the store does not book under the limiter's algorithm.
func (l *Limiter) BookAny(ctx context.Context, within time.Duration, subjects ...Subject) (int, *Reservation, error) {
	if err := l.books("BookAny"); err != nil {
		return -1, nil, err
	}
	return l.holdAny(ctx, within, subjects)
}

// holdAny decides on any of several subjects for a caller that settles: see decideForHolder.
func (l *Limiter) holdAny(ctx context.Context, within time.Duration, subjects []Subject) (int, *Reservation, error) {
	options, err := l.choice(subjects, true)
	if err != nil {
		return -1, nil, err
	}
	for i := range options {
		options[i].book(within)
	}
	type held struct {
		chosen int
		res    Result
	}
	h, err := outlive(ctx, l.leavers, func(ctx context.Context) (h held, err error) {
		h.chosen, h.res, err = l.decideAny(ctx, options)
		return h, err
	}, func(h held) { l.giveBack(ctx, []call{options[h.chosen].call}, []Result{h.res}) })
	if err != nil {
		return -1, nil, storeError(ctx, err)
	}
	chosen := &options[h.chosen]
	r := newReservation(l, chosen.call, h.res)
	if r.books && r.Allowed() {
		l.lines.trade(ctx, []*Reservation{r}, chosen.Within)
	}
	return chosen.index, r, nil
}

// An option is one of the calls of which any may be charged.
type option struct {
	call
	index int // among the subjects
}

// choice checks the subjects of a decision on any of them. It returns those that can ever be charged, beginning at a random
// one.
func (l *Limiter) choice(subjects []Subject, maySettle bool) ([]option, error) {
	n := len(subjects)
	if n == 0 || n > MaxAny {
		return nil, fmt.Errorf("%w: %d subjects; a choice has 1 to %d", ErrInvalidLimit, n, MaxAny)
	}
	options := make([]option, 0, n)
	seen := make(map[string]bool, n)
	var never error
	var last *policy
	first := rand.IntN(n)
	for i := range n {
		index := (first + i) % n
		s := &subjects[index]
		key, err := l.key(s.Key)
		if err != nil {
			return nil, err
		}
		if seen[key] {
			return nil, fmt.Errorf("%w: the subject %s appears twice", ErrInvalidKey, clip(s.Key))
		}
		seen[key] = true
		if last == nil || !sameSlice(s.Limits, subjects[(index+n-1)%n].Limits) {
			if last, err = l.policyOf(s); err != nil {
				return nil, err
			}
		}
		if err := last.checkCost(s.Cost); errors.Is(err, ErrCostAboveLimit) {
			never = err
			continue
		} else if err != nil {
			return nil, err
		}
		options = append(options, option{newCall(key, s.Cost, last, maySettle), index})
	}
	if len(options) == 0 {
		return nil, never
	}
	return options, nil
}

// policyOf returns the policy of a subject.
func (l *Limiter) policyOf(s *Subject) (*policy, error) {
	if len(s.Limits) == 0 {
		return l.policy, nil
	}
	return l.plans.of(&l.opts, s.Limits)
}

// sameSlice reports whether two slices are the same memory, as the limits of many subjects are, so that one policy serves
// them.
func sameSlice(a, b []Limit) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// decideAny has the store decide on any of several calls, and returns which one it chose.
func (l *Limiter) decideAny(ctx context.Context, options []option) (chosen int, res Result, err error) {
	if err := ctx.Err(); err != nil {
		return 0, Result{}, storeError(ctx, err)
	}
	b := driver.Batch{Mode: driver.Any, Ops: make([]driver.Op, len(options))}
	for i := range options {
		b.Ops[i].Request = options[i].Request
	}
	if l.opts.Observer != nil {
		at := time.Now()
		defer func() { l.observe(ctx, at, []call{options[chosen].call}, []Result{res}, err) }()
	}
	began, err := l.pace.begin(ctx, l.store, b.Ops[0].Key, b.Ops[0].Policy)
	if err != nil {
		return 0, Result{}, err
	}
	if err = b.Do(ctx, l.store); errors.Is(err, driver.ErrApart) {
		err = driver.ChooseApart(ctx, l.store, &b)
	}
	l.pace.end(ctx, began, err)
	if err != nil {
		return 0, Result{}, storeError(ctx, err)
	}
	chosen = b.Chosen
	return chosen, resultOf(options[chosen].Key, options[chosen].policy, &b.Ops[chosen].Answer), nil
}
