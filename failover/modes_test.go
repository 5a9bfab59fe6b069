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
	"example.com/sash/memstore"
)

func TestPoliciesThatMeanNothingAreErrors(t *testing.T) {
	local := memstore.New(nil)
	rules := func(r ...failover.Rule) failover.Modes { return failover.Modes{Rules: r} }
	for name, opts := range map[string]failover.Options{
		"local without a store": {Modes: always(failover.Local)},
		"open for a guard":      {Local: local, Modes: failover.Modes{Guard: true, Rules: []failover.Rule{{MaxCost: 1, Mode: failover.Open}}}},
		"any cost first":        {Local: local, Modes: rules(failover.Rule{Mode: failover.Local}, failover.Rule{MaxCost: 5, Mode: failover.Open})},
		"the same cost twice":   {Local: local, Modes: rules(failover.Rule{MaxCost: 5, Mode: failover.Local}, failover.Rule{MaxCost: 5, Mode: failover.Open})},
		"the wrong way round":   {Local: local, Modes: rules(failover.Rule{MaxCost: 5, Mode: failover.Local}, failover.Rule{MaxCost: 1, Mode: failover.Open})},
		"a negative cost":       {Modes: rules(failover.Rule{MaxCost: -1, Mode: failover.Open})},
		"an unknown mode":       {Modes: always(77)},
		"a negative budget":     {Budget: -1},
		"a negative bound":      {MaxInFlight: -1},
		"a negative blip":       {Blip: -1},
	} {
		if _, err := failover.New(newFake(), &opts); err == nil {
			t.Errorf("%s is not an error", name)
		}
	}
	guard := failover.Modes{Guard: true, Rules: []failover.Rule{{Mode: failover.Local}}}
	if _, err := failover.New(newFake(), &failover.Options{Local: local, Modes: guard}); err != nil {
		t.Error(err)
	}
}

func TestAnOpenAnswerLooksLikeAnUnusedLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, store, l := outage(t, failover.Options{Modes: always(failover.Open)}, sash.PerMinute(10), sash.PerHour(50))
		bringDown(t, inner, store)
		r := failover.Must(l.Reserve(t.Context(), "k", 3, nil))(t)
		res := r.Result()
		if !res.Allowed || res.Remaining != 7 || res.RetryAfter != 0 || len(res.Limits()) != 2 || !res.At.Equal(time.Now()) {
			t.Errorf("%+v", res)
		}
		if err := r.Settle(t.Context(), 2); err != nil {
			t.Errorf("settling what was charged nowhere: %v", err)
		}
		if res, err := l.AllowUpTo(t.Context(), "k", 4); err != nil || res.Charged != 4 {
			t.Errorf("up to 4 units: %+v, %v", res, err)
		}
	})
}

// Mode Open lets at most OpenPerSecond units through in any second, over all limits and modes of a store, and nearly as
// many if they are asked for; the rest is an error with the cause.
func TestOpenHasACeiling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 100
		inner := newFake()
		store := guarded(t, inner, failover.Options{Modes: always(failover.Open), OpenPerSecond: most})
		other := failover.Must(store.With(failover.Modes{Rules: []failover.Rule{{MaxCost: 10, Mode: failover.Open}}}))(t)
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

// The failure mode answers for a choice: an error, an admission that is not counted, or this process's share of any of the subjects.
func TestAChoiceIsAnsweredByTheMode(t *testing.T) {
	for mode, want := range map[failover.Mode]int{failover.Closed: 0, failover.Local: 6, failover.Open: 20} {
		failover.Bubble(t, mode.String(), func(t *testing.T) {
			inner, store, l := outage(t, failover.Options{Modes: always(mode), Instances: func() int { return 2 }}, sash.PerMinute(4))
			bringDown(t, inner, store)
			pool := []sash.Subject{{Key: "a", Cost: 1}, {Key: "b", Cost: 1}, {Key: "c", Cost: 1}}
			admitted := 0
			for range 20 {
				_, res, err := l.AllowAny(t.Context(), pool...)
				if (err != nil) != (mode == failover.Closed) || err != nil && !errors.Is(err, sash.ErrUnavailable) {
					t.Fatal(err)
				}
				if res.Allowed {
					admitted++
				}
			}
			if admitted != want {
				t.Errorf("%d of 20 were admitted, want %d", admitted, want)
			}
		})
	}
}

// Callers that book while the store is away book the subject that is free first, of this process's share.
func TestAChoiceIsBookedLocally(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, store, l := outage(t, failover.Options{Modes: always(failover.Local)}, sash.Every(2, 10*time.Second))
		bringDown(t, inner, store)
		pool := []sash.Subject{{Key: "b", Cost: 1}, {Key: "c", Cost: 1}}
		delays := map[time.Duration]int{}
		for range 12 {
			r, err := l.Reserve(t.Context(), "a", 1, &sash.ReserveOptions{WaitUpTo: time.Minute, Any: pool})
			if err != nil || !r.Allowed() {
				t.Fatalf("%+v, %v", r, err)
			}
			delays[r.StartsIn()]++
		}
		if delays[0] != 6 || delays[10*time.Second] != 6 {
			t.Errorf("6 now and 6 in 10 s were to start: %v", delays)
		}
	})
}
