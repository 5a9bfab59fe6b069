package decide

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
)

// undoTime bounds giving back what was charged to a request that is refused in the end.
const undoTime = time.Second

// A run is one request's work with the store.
type run struct {
	store   driver.Store
	charged []charge
}

// A charge is what a run can give back.
type charge struct {
	req  driver.Request
	res  driver.Answer
	asks []*asked // those that were told
}

// A batch is what is decided in one step.
type batch struct {
	reqs []driver.Request
	asks [][]*asked // those that each request is for
}

// together decides parts, all or nothing, and reports whether they were admitted.
func (r *run) together(ctx context.Context, asks []*asked) (bool, error) {
	possible := true
	for _, a := range asks {
		possible = possible && !a.tooLarge
	}
	if !possible {
		for _, a := range asks {
			if err := r.impossible(ctx, a); err != nil {
				return false, err
			}
		}
		return false, nil
	}
	batches := batchesOf(asks)
	for _, b := range batches {
		if b.tooLarge() {
			return false, r.lookAll(ctx, asks)
		}
	}
	for i := range batches {
		for j := range batches[i].reqs {
			batches[i].reqs[j].MaySettle = len(batches) > 1 // undo may give it back
		}
		admitted, err := r.decide(ctx, &batches[i])
		if admitted && err == nil {
			continue
		}
		undone := r.charged
		if err = errors.Join(err, r.undo(ctx)); err != nil {
			return false, err
		}
		// Those that were given back, and those that were not asked, are told what is left.
		for _, c := range undone {
			if err := r.lookAll(ctx, c.asks); err != nil {
				return false, err
			}
		}
		for _, b := range batches[i+1:] {
			for _, asks := range b.asks {
				if err := r.lookAll(ctx, asks); err != nil {
					return false, err
				}
			}
		}
		return false, nil
	}
	return true, nil
}

// batchesOf puts parts together that the store can decide in one step. Parts of one subject and policy are
// one request for the sum of their units.
func batchesOf(asks []*asked) []batch {
	var batches []batch
next:
	for _, a := range asks {
		for i := range batches {
			b := &batches[i]
			first := b.reqs[0].Policy
			if first.Algorithm != a.req.Policy.Algorithm || first.Resolution != a.req.Policy.Resolution ||
				first.CountRefused != a.req.Policy.CountRefused {
				continue
			}
			same := -1
			for j := range b.reqs {
				if b.reqs[j].Key == a.req.Key {
					same = j
				}
			}
			switch {
			case same >= 0 && b.reqs[same].Policy == a.req.Policy && b.reqs[same].Cost <= sash.MaxUnits-a.req.Cost:
				b.reqs[same].Cost += a.req.Cost
				b.asks[same] = append(b.asks[same], a)
				continue next
			case same < 0 && len(b.reqs) < sash.MaxSubjects:
				b.reqs = append(b.reqs, a.req)
				b.asks = append(b.asks, []*asked{a})
				continue next
			}
		}
		batches = append(batches, batch{reqs: []driver.Request{a.req}, asks: [][]*asked{{a}}})
	}
	return batches
}

// tooLarge reports whether parts of one subject, each of which has room alone, can never have it together.
// It marks them.
func (b *batch) tooLarge() bool {
	found := false
	for i, req := range b.reqs {
		for _, l := range req.Policy.Limits {
			if req.Cost <= l.Units {
				continue
			}
			found = true
			for _, a := range b.asks[i] {
				a.req.Cost = req.Cost
			}
		}
	}
	return found
}

// decide decides a batch, in one step where the store can.
func (r *run) decide(ctx context.Context, b *batch) (bool, error) {
	store, err := r.storeFor(b)
	if err != nil {
		return false, err
	}
	if many, ok := store.(driver.MultiStore); ok && len(b.reqs) > 1 {
		results, err := many.DecideAll(ctx, b.reqs)
		if err == nil {
			return r.note(b, results), nil
		}
		if !errors.Is(err, driver.ErrApart) {
			return false, err
		}
	}
	admitted := true
	for i := range b.reqs {
		if !admitted {
			if err := r.lookAll(ctx, b.asks[i]); err != nil {
				return false, err
			}
			continue
		}
		req := b.reqs[i]
		req.MaySettle = req.MaySettle || len(b.reqs) > 1
		res, err := store.Decide(ctx, req)
		if err != nil {
			return false, err
		}
		admitted = r.note(&batch{b.reqs[i : i+1], b.asks[i : i+1]}, []driver.Answer{res})
	}
	return admitted, nil
}

// note fills in answers, and reports whether all were admitted.
func (r *run) note(b *batch, results []driver.Answer) bool {
	admitted := true
	for _, res := range results {
		admitted = admitted && res.Allowed()
	}
	for i, res := range results {
		for _, a := range b.asks[i] {
			a.answer.tell(a.limiter.Result(a.req.Key, res))
		}
		if admitted && b.reqs[i].Cost > 0 {
			r.charged = append(r.charged, charge{b.reqs[i], res, b.asks[i]})
		}
	}
	return admitted
}

// undo gives back what was charged. The caller may be gone; it is given back all the same.
func (r *run) undo(ctx context.Context) error {
	if len(r.charged) == 0 {
		return nil
	}
	settler, ok := r.store.(driver.Settler)
	if !ok {
		return fmt.Errorf("%w: one decision in several steps", sash.ErrUnsupported)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	var failed error
	for _, c := range r.charged {
		failed = errors.Join(failed, settler.Settle(ctx, driver.Settlement{Request: c.req, At: c.res.At, Source: c.res.Source}))
	}
	r.charged = nil
	return failed
}

// alone decides a part by itself, or, where the request is refused already, only looks.
func (r *run) alone(ctx context.Context, a *asked, charge bool) error {
	switch {
	case !charge:
		return r.look(ctx, a)
	case a.tooLarge:
		return r.impossible(ctx, a)
	}
	res, err := r.ask(ctx, a, a.req)
	if err == nil {
		a.answer.tell(a.limiter.Result(a.req.Key, res))
	}
	return err
}

// impossible answers a part of a request that has more units than a limit. A part that has and that counts
// what it refuses is charged with as many as it holds.
func (r *run) impossible(ctx context.Context, a *asked) error {
	if !a.tooLarge || a.req.Policy == nil || !a.req.Policy.CountRefused {
		return r.look(ctx, a)
	}
	all := a.req
	for _, l := range all.Policy.Limits {
		all.Cost = min(all.Cost, l.Units)
	}
	if _, err := r.store.Decide(ctx, all); err != nil {
		return err
	}
	return r.look(ctx, a)
}

func (r *run) lookAll(ctx context.Context, asks []*asked) error {
	for _, a := range asks {
		if err := r.look(ctx, a); err != nil {
			return err
		}
	}
	return nil
}

// look fills in an answer without charging: whether the part would be refused, and what is left.
func (r *run) look(ctx context.Context, a *asked) error {
	if a.req.Policy == nil {
		a.tellNever()
		return nil
	}
	res, err := r.ask(ctx, a, driver.Request{Key: a.req.Key, Policy: a.req.Policy})
	if err != nil {
		return err
	}
	a.answer.tell(a.limiter.Result(a.req.Key, res))
	if a.answer.Refused || a.refund {
		return nil
	}
	for _, l := range a.answer.Limits {
		if l.Remaining < a.req.Cost {
			a.answer.Refused, a.answer.RefusedBy = true, l
			break
		}
	}
	return nil
}

// tell fills in the answer from a result.
func (a *Answer) tell(res sash.Result) {
	a.Limits, a.Source, a.Cause = res.Limits(), res.Source, res.Cause
	a.RefusedBy, a.Refused = sash.LimitResult{}, false
	for _, l := range a.Limits {
		if l.Refused && (!a.Refused || l.RetryAfter > a.RefusedBy.RetryAfter) {
			a.Refused, a.RefusedBy = true, l
		}
	}
}

// tellNever fills in the answer of a limit of no units.
func (a *asked) tellNever() {
	if a.answer.Banned {
		return // it was told
	}
	limit := a.limits[0]
	if limit.Name == "" {
		limit.Name = limit.String()
	}
	by := sash.LimitResult{Key: a.req.Key, Limit: limit, Refused: !a.refund}
	a.answer.Limits = []sash.LimitResult{by}
	a.answer.Refused, a.answer.RefusedBy = !a.refund, by
}
