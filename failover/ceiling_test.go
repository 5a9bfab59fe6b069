package failover_test

import (
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
)

// Mode Open lets at most OpenPerSecond units through in any second, over all limits and modes of a store, and nearly as
// many if they are asked for; the rest is an error with the cause.
func TestOpenHasACeiling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 100
		inner := newFake()
		store := guarded(t, inner, failover.Options{Modes: always(failover.Open), OpenPerSecond: most})
		other, err := store.With(failover.Modes{Rules: []failover.Rule{{MaxCost: 10, Mode: failover.Open}}})
		if err != nil {
			t.Fatal(err)
		}
		limiters := []*sash.Limiter{newLimiter(t, store, nil, sash.PerHour(1000)), newLimiter(t, other, nil, sash.PerMinute(10))}
		inner.becomes(fails(errRefused))
		type admission struct {
			at    time.Time
			units int64
		}
		var all []admission
		var units, refused int64
		rng := rand.New(rand.NewPCG(1, 2))
		began := time.Now()
		for time.Since(began) < time.Minute {
			cost := 1 + rng.Int64N(5)
			res, err := limiters[rng.IntN(2)].AllowN(t.Context(), "k", cost)
			switch {
			case err == nil && res.Source == driver.FromPolicy:
				all = append(all, admission{time.Now(), cost})
				units += cost
			case errors.Is(err, failover.ErrCeiling) && errors.Is(err, sash.ErrUnavailable):
				refused++
			default:
				t.Fatal(res, err)
			}
			time.Sleep(time.Duration(rng.Int64N(int64(20 * time.Millisecond))))
			if rng.IntN(300) == 0 {
				time.Sleep(time.Duration(rng.Int64N(int64(3 * time.Second))))
			}
		}
		for i := range all {
			sum := int64(0)
			for j := i; j >= 0 && all[i].at.Sub(all[j].at) < time.Second; j-- {
				sum += all[j].units
			}
			if sum > most {
				t.Fatalf("%d units in the second before %v", sum, all[i].at)
			}
		}
		if refused == 0 || units < 60*most/2 {
			t.Errorf("%d units were let through in a minute, %d calls were not", units, refused)
		}
		if _, err := limiters[0].Peek(t.Context(), "k"); err != nil {
			t.Errorf("a peek costs nothing: %v", err)
		}
		bringBack(t, inner, store)
		for range 500 {
			if res := allow(t, limiters[0], "k", 1); res.Source != driver.FromStore {
				t.Fatalf("a store that is up is bounded too: %+v", res)
			}
		}
	})
}

func TestACeilingBelowNothing(t *testing.T) {
	if _, err := failover.New(newFake(), &failover.Options{OpenPerSecond: -1}); err == nil {
		t.Error("a negative ceiling is accepted")
	}
}
