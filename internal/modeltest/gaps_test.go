package modeltest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/memstore"
)

// gapped: where units come back before bookings, bookings of one subject or two start when they do in memory, whose gaps are
// those of the definition.
func (b *bench) gapped() error {
	if b.algorithm != sash.SlidingLog && b.algorithm != sash.SlidingBuckets {
		return nil
	}
	small, smallClock, _ := b.small()
	for seed := range uint64(60) {
		store, clock := b.store, b.clock
		if seed%2 == 0 {
			store, clock = small, smallClock
		}
		r := rand.New(rand.NewPCG(seed, 31))
		limits := slices.Clone(bookPlans[seed%5])
		opts := sash.Options{Algorithm: b.algorithm}
		if b.algorithm == sash.SlidingBuckets {
			opts.Resolution = time.Second
		}
		policy, err := sash.NewPolicy(&opts, limits...)
		if err != nil {
			return err
		}
		least := slices.MinFunc(policy.Limits, func(a, b driver.Limit) int { return int(a.Units - b.Units) }).Units
		memory := memstore.New(&memstore.Options{Now: clock.Now})
		var held []driver.Settlement
		for step := range 90 {
			clock.Advance(time.Duration(r.Int64N(1_500_000)) * time.Microsecond)
			keys := []string{fmt.Sprint("gaps", seed), fmt.Sprint("gaps beside ", seed)}
			if units := 1 + r.Int64N(2); r.IntN(8) == 0 {
				key := keys[r.IntN(2)]
				err := both(store, memory, func(s driver.Settler) error {
					_, err := s.(driver.Taker).Reward(context.Background(), driver.Request{Key: key, Policy: policy, Cost: units})
					return err
				})
				if err != nil {
					return fmt.Errorf("gaps %d: %w", seed, err)
				}
				held = nil // of which the units are gone
				continue
			}
			if n := len(held); n > 0 && r.IntN(3) == 0 {
				set := held[n-1-r.IntN(min(n, 6))]
				set.Units = r.Int64N(set.Request.Cost + 1)
				if err := both(store, memory, func(s driver.Settler) error { return s.Settle(context.Background(), set) }); err != nil {
					return fmt.Errorf("gaps %d: %w", seed, err)
				}
				held = slices.DeleteFunc(held, func(h driver.Settlement) bool { return h.ID == set.ID })
				continue
			}
			req := driver.Request{Key: keys[0], Policy: policy, Cost: 1 + r.Int64N(least), MaySettle: true}
			if r.IntN(4) > 0 {
				req.Within = r.Int64N(60_000_000)
			}
			reqs := []driver.Request{req, req}
			reqs[1].Key, reqs[1].Cost = keys[1], 1+r.Int64N(least)
			switch r.IntN(2 + int(seed)/20) { // so some worlds have only those of one subject
			case 0:
				reqs = reqs[:1]
			case 1:
				reqs = reqs[1:]
			}
			var answers []driver.Answer
			err := both(store, memory, func(s driver.Settler) error {
				all, err := s.(driver.MultiStore).DecideAll(context.Background(), reqs)
				answers = append(answers, all...)
				return err
			})
			if err != nil {
				return fmt.Errorf("gaps %d: %w", seed, err)
			}
			for i, req := range reqs {
				got, want := &answers[i], &answers[len(reqs)+i]
				if got.At != want.At || got.Delay != want.Delay || got.Refusals != want.Refusals || !reflect.DeepEqual(got.Statuses(), want.Statuses()) {
					return fmt.Errorf("gaps %d, step %d: %d subjects, cost %d within %d: %s, want %s", seed, step, len(reqs), req.Cost, req.Within, shown(got), shown(want))
				}
				if got.Allowed() {
					held = append(held, driver.Settlement{Request: req, At: got.At, Delay: got.Delay, Source: driver.FromStore, ID: fmt.Sprint(seed, "-", step, "-", i)})
				}
			}
		}
	}
	return nil
}

// counted: charges of a limiter that counts refused calls are not forgotten, also where units came back before bookings.
func (b *bench) counted() error {
	if b.algorithm != sash.SlidingLog {
		return nil
	}
	ctx, key := context.Background(), "gaps counted"
	few, err := sash.NewPolicy(nil, sash.PerMinute(10))
	if err != nil {
		return err
	}
	many, err := sash.NewPolicy(&sash.Options{CountRefused: true}, sash.PerMinute(100))
	if err != nil {
		return err
	}
	var last driver.Answer
	req := driver.Request{Key: key, Policy: few, Cost: 1, MaySettle: true, Within: 3_600_000_000}
	for range 11 {
		b.clock.Advance(time.Millisecond)
		if last, err = b.store.Decide(ctx, req); err != nil {
			return err
		}
	}
	if err := b.store.Settle(ctx, driver.Settlement{Request: req, At: last.At, Delay: last.Delay, Source: driver.FromStore}); err != nil {
		return err
	}
	admitted := 0
	for range 500 {
		b.clock.Advance(time.Millisecond)
		answer, err := b.store.Decide(ctx, driver.Request{Key: key, Policy: many, Cost: 1})
		if err != nil {
			return err
		}
		if answer.Allowed() {
			admitted++
		}
	}
	if admitted > 90 {
		return fmt.Errorf("%d calls of a limit of 100 are admitted beside 10 others", admitted)
	}
	return nil
}

// both calls f with each store, and returns the first error.
func both(a, b driver.Settler, f func(driver.Settler) error) error {
	if err := f(a); err != nil {
		return err
	}
	return f(b)
}
