package memstore_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/memstore"
)

// What a store does about other keys changes nothing for a key: with others, whose charges sweep it, it gives the answers
// that a store of this one key gives, which never sweeps. Settlements come late and are repeated.
func TestOtherKeysChangeNothing(t *testing.T) {
	const window = 20 * time.Millisecond // few steps of the clock, so that everything meets in one instant
	for _, a := range sash.Algorithms() {
		t.Run(a.String(), func(t *testing.T) {
			opts := &sash.Options{Algorithm: a}
			if a == sash.SlidingBuckets {
				opts.Resolution = 5 * time.Millisecond
			}
			policy := newPolicy(t, opts, sash.Every(10, window))
			for seed := range uint64(200) {
				walkWithOthers(t, policy, seed)
			}
		})
	}
}

func walkWithOthers(t *testing.T, policy *driver.Policy, seed uint64) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 3))
	_, clock := newStore(t, 0)
	alone := memstore.New(&memstore.Options{Now: clock.Now})
	crowded := memstore.New(&memstore.Options{Now: clock.Now, MaxKeys: 127}) // in one shard, and less than half full
	decide := func(store driver.Store, req driver.Request) driver.Answer {
		answer, err := store.Decide(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	var settlements []driver.Settlement
	for step := range 300 {
		clock.Advance(time.Duration(random.IntN(2)*random.IntN(10)) * time.Millisecond)
		for range random.IntN(4) {
			decide(crowded, driver.Request{Key: fmt.Sprint("other ", random.IntN(40)), Cost: 1, Policy: policy})
		}
		if random.IntN(2) == 0 && len(settlements) > 0 {
			set := settlements[max(0, len(settlements)-1-random.IntN(4))]
			for _, store := range []*memstore.Store{alone, crowded} {
				if err := store.Settle(t.Context(), set); err != nil {
					t.Fatal(err)
				}
			}
		}
		req := driver.Request{Key: "k", Cost: random.Int64N(2) * random.Int64N(8), Policy: policy, MaySettle: true}
		want, got := decide(alone, req), decide(crowded, req)
		if got.Refusals != want.Refusals || got.Statuses()[0] != want.Statuses()[0] {
			t.Fatalf("seed %d, step %d, cost %d: %+v, without other keys %+v",
				seed, step, req.Cost, got.Statuses()[0], want.Statuses()[0])
		}
		if want.Allowed() && req.Cost > 0 {
			settlements = append(settlements, driver.Settlement{
				Request: req, At: want.At, Units: random.Int64N(2) * random.Int64N(10), ID: fmt.Sprint(step),
			})
		}
	}
}
