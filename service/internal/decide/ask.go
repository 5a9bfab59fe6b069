package decide

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/internal/apart"
	"example.com/sash/service/internal/config"
)

// alone decides a part by itself. If the request is refused already, alone only looks.
func (a *Answer) alone(ctx context.Context, charge bool) error {
	switch {
	case !charge || a.need == 0:
		return a.look(ctx)
	case a.never:
		return a.impossible(ctx)
	case a.within > 0, a.settles:
		return a.book(ctx, "")
	}
	return a.take(a.limits.limiter.AllowN(ctx, a.Key, a.need))
}

// impossible answers a part that can never fit. Limits that count refused requests are charged with all the units that they hold.
func (a *Answer) impossible(ctx context.Context) error {
	if a.never && a.BannedBy == nil && a.limits.limiter != nil && a.limits.opts.CountRefused {
		all := min(a.need, a.limits.limiter.Policy().MostUnits())
		if _, err := a.limits.limiter.AllowN(ctx, a.Key, all); err != nil {
			return err
		}
	}
	return a.look(ctx)
}

// insist charges a refused part with Part.Always. The refusal stands even if units leave meanwhile or the store fails.
func (a *Answer) insist(ctx context.Context, admitted bool) {
	if !a.always || a.limits == nil || a.limits.limiter == nil || a.limits.opts.CountRefused || admitted && !a.Refused {
		return
	}
	was := *a
	err := a.take(a.limits.limiter.Penalize(ctx, a.Key, min(a.Cost, sash.MaxUnits)))
	if err != nil || was.Blocked || a.Source == sash.FromPolicy {
		*a = was
	} else if was.Refused && !a.Refused {
		a.Refused, a.RefusedBy = true, was.RefusedBy
	}
}

// MaxRefunds is the most parts of a request that give units back.
const MaxRefunds = 8

// giveBack gives units back to a subject. It takes them from the oldest charges that still count, since the others have to count for
// longer. The store bounds the charges that it takes from: see sash.Limiter.Reward. While it is unavailable, nothing is given back.
func (a *Answer) giveBack(ctx context.Context, admitted bool) error {
	defer func() { a.Refused, a.RefusedBy = false, sash.LimitResult{} }()
	if admitted && a.limits.limiter != nil && a.need > 0 {
		err := a.take(a.limits.plain.Reward(ctx, a.Key, min(a.need, sash.MaxUnits)))
		if !errors.Is(err, sash.ErrUnavailable) {
			return err
		}
	}
	return a.look(ctx) // answers as the rule says
}

func lookAll(ctx context.Context, parts []*Answer) error {
	for _, a := range parts {
		if err := a.look(ctx); err != nil {
			return err
		}
	}
	return nil
}

// look fills in an answer without charging: whether the part would be refused, and what is left.
func (a *Answer) look(ctx context.Context) error {
	switch {
	case a.BannedBy != nil:
		return nil
	case a.limits.limiter == nil:
		a.answerBy(a.limits.named[0], !a.refund, 0) // a limit of no units
		return nil
	}
	err := a.take(a.limits.limiter.Peek(ctx, a.Key))
	if err == nil && !a.refund {
		a.Foresee(a.need)
	}
	return err
}

// Foresee turns the answer to a look into the answer to a request with a cost. A limit without room for the cost refuses. Its
// RetryAfter is the time until its next units are released: exact for a cost of 1, and perhaps too short for a larger one.
func (a *Answer) Foresee(cost int64) {
	for i := range a.Limits {
		if l := &a.Limits[i]; l.Remaining < cost {
			l.Refused, l.RetryAfter = true, max(l.RetryAfter, l.ReleaseAfter)
		}
	}
	a.refusal()
}

func (a *Answer) take(res sash.Result, err error) error {
	if err == nil {
		a.result(res)
	}
	return err
}

func (a *Answer) result(res sash.Result) {
	a.Limits, a.At, a.Delay, a.Source, a.Cause, a.Blocked = res.Limits(), res.At, res.Delay, res.Source, res.Cause, res.Blocked
	a.refusal()
}

func (a *Answer) refusal() {
	a.Refused, a.RefusedBy = false, sash.LimitResult{}
	for i := range a.Limits {
		if l := &a.Limits[i]; l.Refused && (!a.Refused || l.RetryAfter > a.RefusedBy.RetryAfter) {
			a.Refused, a.RefusedBy = true, *l
		}
	}
}

// answerBy fills in the answer for one limit without the store: whether the limit refuses, and for how long.
func (a *Answer) answerBy(limit sash.Limit, refuses bool, left time.Duration) {
	limit.Name = cmp.Or(limit.Name, limit.String())
	a.Limits = []sash.LimitResult{{Key: a.Key, Limit: limit, Refused: refuses, RetryAfter: left, ReleaseAfter: left, ResetAfter: left}}
	a.refusal()
}

// failure returns the error of a caller that gave up, or of a store that failed.
func failure(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%w (%v)", ctx.Err(), err)
	case errors.Is(err, sash.ErrUnavailable), errors.Is(err, sash.ErrUnsupported), errors.Is(err, sash.ErrCostAboveLimit):
		return err
	}
	return &sash.StoreError{Err: err}
}

// together decides parts all or nothing, and reports whether they were admitted. The parts may be in several stores.
func (d *Decider) together(ctx context.Context, parts []*Answer) (bool, error) {
	switch {
	case len(parts) == 0:
		return true, nil
	case len(parts) == 1:
		err := parts[0].alone(ctx, true)
		return !parts[0].Refused, err
	case slices.ContainsFunc(parts, func(a *Answer) bool { return a.never }):
		for _, a := range parts {
			if err := a.impossible(ctx); err != nil {
				return false, err
			}
		}
		return false, nil
	}
	batches := batchesOf(parts)
	steps := make([][]driver.Op, len(batches))
	for i, b := range batches {
		if b.neverFits() {
			return false, lookAll(ctx, parts)
		}
		steps[i] = b.ops
	}
	store, err := d.storeFor(batches)
	if err != nil {
		return false, err
	}
	var admitted bool
	err = outlive(ctx, store, parts[0].settles, func(ctx context.Context) (_ []driver.Op, err error) {
		if admitted, err = apart.Decide(ctx, store, steps...); !admitted {
			return nil, err
		}
		return slices.Concat(steps...), err
	})
	if err != nil {
		return false, err
	}
	for _, b := range batches {
		for j := range b.ops {
			for _, a := range b.parts[j] {
				if answer := b.ops[j].Answer; len(answer.Statuses()) > 0 {
					a.result(a.limits.limiter.Result(a.Key, answer))
				} else if err := a.look(ctx); err != nil { // given back, or not decided: look reports what is left
					return false, err
				}
			}
		}
	}
	return admitted, nil
}

// outlive makes a decision that returns what it charged. If the charge can be settled and the caller leaves first, outlive gives it back.
func outlive(ctx context.Context, store driver.Store, settles bool, decide func(context.Context) ([]driver.Op, error)) (err error) {
	if !settles {
		_, err = decide(ctx)
	} else {
		_, err = apart.Outlive(ctx, nil, decide, func(charged []driver.Op) {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
			defer cancel()
			for i := range charged {
				if charged[i].Cost > 0 && charged[i].Answer.Allowed() {
					_ = store.Do(ctx, &driver.Batch{Ops: []driver.Op{apart.Undo(&charged[i])}})
				}
			}
		})
	}
	if err != nil {
		return failure(ctx, err)
	}
	return nil
}

// A batch is what the store decides in one step: one charge of each subject, in the order of their keys.
type batch struct {
	kind
	ops   []driver.Op
	parts [][]*Answer // the parts that each charge is for
}

// A kind is what parts have in common if the store can decide them in one step. A lease belongs to one subject.
type kind struct {
	place  config.Place
	opts   sash.Options
	leased string // the key of a subject with a lease
}

func (a *Answer) kind() kind {
	k := kind{a.limits.place, a.limits.opts, ""}
	if k.place.Lease > 0 {
		k.leased = a.Key
	}
	return k
}

func (a *Answer) request() driver.Request {
	return driver.Request{Key: a.Key, Cost: a.need, Policy: a.limits.limiter.Policy(), MaySettle: a.settles}
}

// batchesOf groups parts, in any order, into steps of the store. Parts with the same subject and policy become one request.
func batchesOf(parts []*Answer) []*batch {
	parts = slices.Clone(parts)
	slices.SortStableFunc(parts, func(a, b *Answer) int { return strings.Compare(a.Key, b.Key) })
	var batches []*batch
	open := make(map[kind]*batch)
	for _, a := range parts {
		req, k := a.request(), a.kind()
		b := open[k]
		if b != nil {
			at := len(b.ops) - 1
			last := &b.ops[at]
			switch same := last.Key == req.Key; {
			case same && last.Policy == req.Policy && last.Cost <= sash.MaxUnits-req.Cost:
				last.Cost += req.Cost
				b.parts[at] = append(b.parts[at], a)
				continue
			case same, len(b.ops) == sash.MaxSubjects: // a step has each subject once
				b = nil
			}
		}
		if b == nil {
			b = &batch{kind: k}
			open[k] = b
			batches = append(batches, b)
		}
		b.ops = append(b.ops, driver.Op{Settlement: driver.Settlement{Request: req}})
		b.parts = append(b.parts, []*Answer{a})
	}
	return batches
}

// neverFits reports whether parts of one subject can never fit together. It sets the need of each such part to the cost of all.
func (b *batch) neverFits() bool {
	found := false
	for i := range b.ops {
		cost := b.ops[i].Cost
		if b.parts[i][0].limits.fits(cost) == nil {
			continue
		}
		found = true
		for _, a := range b.parts[i] {
			a.need = cost
		}
	}
	return found
}

// storeFor returns the store for batches, with the strictest failure mode of the parts.
func (d *Decider) storeFor(batches []*batch) (driver.Store, error) {
	modes := modesOf(batches)
	if len(batches) == 1 {
		return d.storeBy(batches[0].place, modes)
	}
	anywhere := make(spread)
	for _, b := range batches {
		store, err := d.storeBy(b.place, modes)
		if err != nil {
			return nil, err
		}
		for i := range b.ops {
			op := &b.ops[i]
			anywhere[subject{op.Key, op.Policy}] = home{store, b.place.Lease > 0 && op.Cost > 0}
		}
	}
	return anywhere, nil
}

func modesOf(batches []*batch) failover.Modes {
	mode, local, most := failover.Open, false, int64(1)
	for _, b := range batches {
		for i := range b.ops {
			cost := b.ops[i].Cost
			most = max(most, cost)
			for _, a := range b.parts[i] {
				mode = min(mode, a.limits.modes.Mode(cost))
				for _, rule := range a.limits.modes.Rules {
					local = local || rule.Mode == failover.Local
				}
			}
		}
	}
	modes := failover.Modes{Rules: []failover.Rule{{MaxCost: most, Mode: mode}}}
	if local { // for other costs, so that the store charges what it admits locally too
		modes.Rules = append(modes.Rules, failover.Rule{Mode: failover.Local})
	}
	return modes
}

// A subject is a key under a policy. Compiled limits have a policy of their own.
type subject struct {
	key    string
	policy *driver.Policy
}

// A home is the store of a subject. If units are leased, a look before the charge would cost a trip to the home of the lease.
type home struct {
	driver.Store
	leased bool
}

// A spread is a store over the stores of several subjects. Each step of a decision concerns one place.
type spread map[subject]home

func (s spread) Powers() driver.Powers { return driver.CanAll | driver.CanSettle }

func (s spread) Do(ctx context.Context, b *driver.Batch) error {
	op := &b.Ops[0]
	at := s[subject{op.Key, op.Policy}]
	if len(b.Ops) > 1 || op.MayCharge() > 0 || op.Kind != driver.Charge || !at.leased {
		return at.Do(ctx, b)
	}
	statuses := make([]driver.Status, len(op.Policy.Limits)) // the look would only save a charge that is given back
	for i, l := range op.Policy.Limits {
		statuses[i].Remaining = l.Units
	}
	op.Answer.Set(0, 0, statuses)
	return nil
}
