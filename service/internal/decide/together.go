package decide

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
)

// undoTime bounds giving back what was charged to a request that is refused in the end.
const undoTime = time.Second

// A batch is what the store decides in one step: one request for each subject.
type batch struct {
	requests []driver.Request
	parts    [][]*Answer // those that each request is for
}

// A charge is a request that was admitted, which can be given back.
type charge struct {
	driver.Settlement
	parts []*Answer
}

// together decides parts all or nothing, and reports whether they were admitted.
func (d *Decider) together(ctx context.Context, parts []*Answer) (bool, error) {
	possible := true
	for _, a := range parts {
		possible = possible && !a.never
	}
	switch {
	case !possible:
		for _, a := range parts {
			if err := d.impossible(ctx, a); err != nil {
				return false, err
			}
		}
		return false, nil
	case len(parts) == 0:
		return true, nil
	case len(parts) == 1:
		err := d.alone(ctx, parts[0], true)
		return !parts[0].Refused, err
	}
	batches := batchesOf(parts)
	for _, b := range batches {
		if b.neverFits() {
			return false, d.lookAll(ctx, parts)
		}
	}
	var charged []charge
	for i := range batches {
		b := &batches[i]
		for j := range b.requests {
			b.requests[j].MaySettle = len(batches) > 1 // undo may give it back
		}
		admitted, err := d.decide(ctx, b, &charged)
		if admitted && err == nil {
			continue
		}
		if err = errors.Join(err, d.undo(ctx, charged)); err != nil {
			return false, err
		}
		// Parts that were given back, and those that were not decided, get what is left.
		for _, c := range charged {
			if err := d.lookAll(ctx, c.parts); err != nil {
				return false, err
			}
		}
		for _, b := range batches[i+1:] {
			for _, parts := range b.parts {
				if err := d.lookAll(ctx, parts); err != nil {
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
func batchesOf(parts []*Answer) []batch {
	var batches []batch
next:
	for _, a := range parts {
		req := a.request()
		for i := range batches {
			b := &batches[i]
			first := b.requests[0].Policy
			if first.Algorithm != req.Policy.Algorithm || first.Resolution != req.Policy.Resolution ||
				first.CountRefused != req.Policy.CountRefused {
				continue
			}
			same := -1
			for j := range b.requests {
				if b.requests[j].Key == req.Key {
					same = j
				}
			}
			switch {
			case same >= 0 && b.requests[same].Policy == req.Policy && b.requests[same].Cost <= sash.MaxUnits-req.Cost:
				b.requests[same].Cost += req.Cost
				b.parts[same] = append(b.parts[same], a)
				continue next
			case same < 0 && len(b.requests) < sash.MaxSubjects:
				b.requests = append(b.requests, req)
				b.parts = append(b.parts, []*Answer{a})
				continue next
			}
		}
		batches = append(batches, batch{requests: []driver.Request{req}, parts: [][]*Answer{{a}}})
	}
	return batches
}

// neverFits reports whether parts of one subject, each of which fits alone, can never fit together. It gives each of
// them the cost of all.
func (b *batch) neverFits() bool {
	found := false
	for i, req := range b.requests {
		if b.parts[i][0].limits.fits(req.Cost) == nil {
			continue
		}
		found = true
		for _, a := range b.parts[i] {
			a.need = req.Cost
		}
	}
	return found
}

// decide decides a batch, in one step where the store can, and adds what it charged.
func (d *Decider) decide(ctx context.Context, b *batch, charged *[]charge) (bool, error) {
	store, err := d.storeFor(b)
	if err != nil {
		return false, err
	}
	if many, ok := store.(driver.MultiStore); ok && len(b.requests) > 1 {
		answers, err := many.DecideAll(ctx, b.requests)
		if err == nil {
			return b.read(answers, charged), nil
		}
		if !errors.Is(err, driver.ErrApart) {
			return false, err
		}
	}
	admitted := true
	for i, req := range b.requests {
		if !admitted {
			if err := d.lookAll(ctx, b.parts[i]); err != nil {
				return false, err
			}
			continue
		}
		req.MaySettle = req.MaySettle || len(b.requests) > 1
		answer, err := store.Decide(ctx, req)
		if err != nil {
			return false, err
		}
		admitted = (&batch{b.requests[i : i+1], b.parts[i : i+1]}).read([]driver.Answer{answer}, charged)
	}
	return admitted, nil
}

// storeFor returns the store for a batch. Where it answers by failure modes the strictest mode of the parts counts, each
// for the units of its request.
func (d *Decider) storeFor(b *batch) (driver.Store, error) {
	if _, ok := d.store.(*failover.Store); !ok || len(b.requests) == 1 && len(b.parts[0]) == 1 {
		return b.parts[0][0].limits.store, nil
	}
	mode, local, most := failover.Open, false, int64(1)
	for i, req := range b.requests {
		most = max(most, req.Cost)
		for _, a := range b.parts[i] {
			mode = min(mode, a.limits.modes.Mode(req.Cost))
			for _, rule := range a.limits.modes.Rules {
				local = local || rule.Mode == failover.Local
			}
		}
	}
	modes := failover.Modes{Rules: []failover.Rule{{MaxCost: most, Mode: mode}}}
	if local { // for other costs: what the store admits is charged locally too
		modes.Rules = append(modes.Rules, failover.Rule{Mode: failover.Local})
	}
	return d.storeBy(modes)
}

// read fills in the answers of a batch, and reports whether all were admitted.
func (b *batch) read(answers []driver.Answer, charged *[]charge) bool {
	admitted := true
	for i := range answers {
		admitted = admitted && answers[i].Allowed()
	}
	for i, answer := range answers {
		for _, a := range b.parts[i] {
			a.read(answer)
		}
		if admitted && b.requests[i].Cost > 0 {
			set := driver.Settlement{Request: b.requests[i], At: answer.At, Source: answer.Source}
			*charged = append(*charged, charge{set, b.parts[i]})
		}
	}
	return admitted
}

// undo gives back what was charged. The caller may be gone; it is given back all the same.
func (d *Decider) undo(ctx context.Context, charged []charge) error {
	if len(charged) == 0 {
		return nil
	}
	store, ok := d.store.(driver.Settler)
	if !ok {
		return fmt.Errorf("%w: one decision in several steps", sash.ErrUnsupported)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	var failed error
	for _, c := range charged {
		failed = errors.Join(failed, store.Settle(ctx, c.Settlement))
	}
	return failed
}

// failure returns the error of a caller that gave up, or of a store that failed.
func failure(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%w (%v)", ctx.Err(), err)
	case errors.Is(err, sash.ErrUnavailable), errors.Is(err, sash.ErrUnsupported):
		return err
	}
	return &sash.StoreError{Err: err}
}
