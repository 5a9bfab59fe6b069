package decide

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/service/internal/config"
)

// A batch is what the store decides in one step: one request for each subject.
type batch struct {
	requests []driver.Request
	parts    [][]*Answer // those that each request is for
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
	steps := make([][]driver.Request, len(batches))
	for i, b := range batches {
		if b.neverFits() {
			return false, d.lookAll(ctx, parts)
		}
		steps[i] = b.requests
	}
	store, err := d.storeFor(batches)
	if err != nil {
		return false, err
	}
	answers, admitted, err := driver.DecideInSteps(ctx, store, steps)
	if err != nil {
		return false, err
	}
	for i, b := range batches {
		if err := d.readBatch(ctx, &b, answers[i]); err != nil {
			return false, err
		}
	}
	return admitted, nil
}

// batchesOf puts parts together that the store can decide in one step, the same ones whatever the order of the parts.
// Parts of one subject and policy are one request for the sum of their units.
func batchesOf(parts []*Answer) []batch {
	parts = slices.Clone(parts)
	slices.SortStableFunc(parts, func(a, b *Answer) int { return strings.Compare(a.Key, b.Key) })
	var batches []batch
	closed := 0 // that many batches are full, of lesser keys
next:
	for _, a := range parts {
		req := a.request()
		for closed < len(batches) && batches[closed].closed(req.Key) {
			closed++
		}
		for i := closed; i < len(batches); i++ {
			b := &batches[i]
			first := b.requests[0].Policy
			if b.place() != a.limits.place || a.limits.place.Lease > 0 && b.requests[0].Key != req.Key {
				continue
			}
			if first.Algorithm != req.Policy.Algorithm || first.Resolution != req.Policy.Resolution ||
				first.CountRefused != req.Policy.CountRefused || first.Block != req.Policy.Block {
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

// place returns where the charges of a batch are kept. Requests for units that are leased have a batch each: a lease is
// of one subject.
func (b *batch) place() config.Place { return b.parts[0][0].limits.place }

// closed reports whether a batch takes no part of a key, nor of a greater one.
func (b *batch) closed(key string) bool {
	n := len(b.requests)
	return n == sash.MaxSubjects && b.requests[n-1].Key != key
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

// storeFor returns the store for batches. Where it answers by failure modes the strictest mode of the parts counts, each
// for the units of its request.
func (d *Decider) storeFor(batches []batch) (driver.Store, error) {
	modes := modesOf(batches)
	place := batches[0].place()
	first, err := d.storeBy(place, modes)
	if err != nil || !slices.ContainsFunc(batches, func(b batch) bool { return b.place() != config.Place{} }) {
		return first, err
	}
	several := &apart{stores: make(map[*driver.Policy]driver.Store), first: first, leased: make(map[subject]bool)}
	for _, b := range batches {
		store, err := d.storeBy(b.place(), modes)
		if err != nil {
			return nil, err
		}
		for _, req := range b.requests {
			several.stores[req.Policy] = store
			several.leased[subject{req.Key, req.Policy}] = b.place().Lease > 0 && req.Cost > 0
		}
	}
	return several, nil
}

// modesOf returns the strictest failure modes of the parts of batches.
func modesOf(batches []batch) failover.Modes {
	mode, local, most := failover.Open, false, int64(1)
	for _, b := range batches {
		for i, req := range b.requests {
			most = max(most, req.Cost)
			for _, a := range b.parts[i] {
				mode = min(mode, a.limits.modes.Mode(req.Cost))
				for _, rule := range a.limits.modes.Rules {
					local = local || rule.Mode == failover.Local
				}
			}
		}
	}
	modes := failover.Modes{Rules: []failover.Rule{{MaxCost: most, Mode: mode}}}
	if local { // for other costs: what the store admits is charged locally too
		modes.Rules = append(modes.Rules, failover.Rule{Mode: failover.Local})
	}
	return modes
}

// readBatch fills in the answers of a batch. Parts that were given back, and those that were not decided, get what is
// left.
func (d *Decider) readBatch(ctx context.Context, b *batch, answers []driver.Answer) error {
	for i, answer := range answers {
		if len(answer.Statuses()) == 0 {
			if err := d.lookAll(ctx, b.parts[i]); err != nil {
				return err
			}
			continue
		}
		for _, a := range b.parts[i] {
			a.read(answer)
		}
	}
	return nil
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
