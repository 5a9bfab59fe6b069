package modeltest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/judge"
	"example.com/sash/internal/redistest"
	"example.com/sash/memstore"
)

// A clock trembles that is at most a millisecond behind what it has shown, as that of a server that was interrupted while it read its
// clock. By the instants of the answers every bound holds.
func TestTheBoundHoldsOnAClockThatTrembles(t *testing.T) {
	server := redistest.Start(t)
	for _, a := range sash.Algorithms() {
		t.Run(a.String(), func(t *testing.T) {
			for seed := range uint64(60 * *times) {
				clock := judge.NewClock(start)
				if err := trembles(memstore.New(&memstore.Options{Now: clock.Now}), clock, a, seed); err != nil {
					t.Fatalf("memory, seed %d: %v", seed, err)
				}
			}
			for seed := range uint64(15 * *times) {
				store, clock, _ := virtual(t, server.Addr(), nil)
				if err := trembles(store, clock, a, seed); err != nil {
					t.Fatalf("Redis, seed %d: %v", seed, err)
				}
			}
		})
	}
}

type trembling interface {
	driver.MultiStore
	driver.Deduplicator
	driver.Booker
}

// trembles makes calls on two subjects, alone and together, and checks what was admitted to each.
func trembles(store trembling, clock *judge.Clock, a sash.Algorithm, seed uint64) error {
	ctx, rng := context.Background(), rand.New(rand.NewPCG(seed, 23))
	limits := []sash.Limit{sash.Every(8, 50*time.Millisecond), sash.Every(30, 400*time.Millisecond)}[:1+rng.IntN(2)]
	opts := &sash.Options{Algorithm: a}
	if a == sash.SlidingBuckets {
		opts.Resolution = 2 * time.Millisecond
	}
	policy, err := sash.NewPolicy(opts, limits...)
	if err != nil {
		return err
	}
	var admitted [2][]judge.Call
	var behind time.Duration
	for step := range 400 {
		clock.Advance(time.Duration(rng.IntN(6_000))*time.Microsecond + behind)
		behind = time.Duration(rng.IntN(2)*rng.IntN(1001)) * time.Microsecond
		clock.Advance(-behind)
		reqs := make([]driver.Request, 0, 2)
		first, n := rng.IntN(2), 1+rng.IntN(3)/2
		for i := first; i < first+n; i++ {
			reqs = append(reqs, driver.Request{Key: fmt.Sprint("tremble", seed, a, i%2), Policy: policy, Cost: 1 + rng.Int64N(3)})
			if store.Books(policy) && step%100 > 50 && rng.IntN(3) == 0 {
				reqs[0].Within = rng.Int64N(100_000)
			}
			reqs[len(reqs)-1].Within = reqs[0].Within
		}
		answers := make([]driver.Answer, 1)
		switch {
		case n > 1:
			answers, err = store.DecideAll(ctx, reqs)
		case rng.IntN(3) == 0:
			answers[0], err = store.DecideOnce(ctx, fmt.Sprint(step), reqs[0])
		default:
			answers[0], err = store.Decide(ctx, reqs[0])
		}
		if err != nil {
			return err
		}
		for i := range answers {
			if answers[i].At != answers[0].At {
				return fmt.Errorf("one call is decided at %d and at %d", answers[0].At, answers[i].At)
			}
			if k := (first + i) % 2; answers[0].Allowed() && answers[len(answers)-1].Allowed() {
				admitted[k] = append(admitted[k], judge.Call{At: time.UnixMicro(answers[i].At), Cost: reqs[i].Cost})
			}
		}
	}
	for _, calls := range admitted {
		if err := trembled(a, limits, calls); err != nil {
			return err
		}
	}
	return nil
}

// trembled checks admissions against the bound of an algorithm.
func trembled(a sash.Algorithm, limits []sash.Limit, calls []judge.Call) error {
	for _, limit := range limits {
		switch a {
		case sash.FixedWindow: // N in each window from a multiple of its length on
			counts := make(map[time.Time]int64)
			for _, c := range calls {
				from := c.At.Truncate(limit.Window)
				if counts[from] += c.Cost; counts[from] > limit.Units {
					return fmt.Errorf("%v: the window from %v on holds %d", limit, from, counts[from])
				}
			}
			continue
		case sash.SlidingCounter, sash.GCRA:
			limit.Units *= 2
		}
		if err := judge.CheckHistory([]sash.Limit{limit}, calls); err != nil {
			return err
		}
	}
	return nil
}
