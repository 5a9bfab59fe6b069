package failover_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
)

// A charge that is settled above its estimate uses up this process's share too: once, however often that is repeated, and
// whatever the modes of the store that settles: the service settles for all of its rules.
func TestASettlementThatIsRepeatedCountsLocallyOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFake()
		store := localStore(t, inner)
		closed, err := store.With(failover.Modes{})
		if err != nil {
			t.Fatal(err)
		}
		l := newLimiter(t, store, nil, sash.PerHour(100))
		for _, id := range []string{"one", "two"} {
			req := driver.Request{Key: "k", Cost: 2, Policy: l.Policy(), MaySettle: true}
			res, err := store.DecideOnce(t.Context(), id, req)
			if err != nil {
				t.Fatal(err)
			}
			for range 9 { // with the ID of the call, which is another one
				set := driver.Settlement{Request: req, At: res.At, Source: res.Source, Units: 10, ID: id}
				if err := closed.Settle(t.Context(), set); err != nil {
					t.Fatal(err)
				}
			}
		}
		bringDown(t, inner, store)
		if got := admit(t, l, "k", 30); got != 5 {
			t.Errorf("%d were admitted locally, want what 20 units left of the share of 25", got)
		}
	})
}

// What was admitted before a reset is not written to the store after it.
func TestAResetForgetsWhatIsOwed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, store, l := outage(t, inFour, sash.PerHour(40))
		bringDown(t, inner, store)
		allow(t, l, "k", 7)
		allow(t, newLimiter(t, store, nil, sash.PerDay(40)), "k", 2)
		if err := l.Reset(t.Context(), "k"); !errors.Is(err, sash.ErrUnavailable) {
			t.Fatal(err)
		}
		bringBack(t, inner, store)
		synctest.Wait()
		if left := remaining(t, inner, sash.PerHour(40)); left != 40 {
			t.Errorf("%d of 40 are left after a reset", left)
		}
	})
}

// A share of nothing leaves nothing, though the local store has no limit of 0 units.
func TestNothingIsLeftOfAShareOfNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, store, l := outage(t, failover.Options{Modes: always(failover.Local), Instances: func() int { return 200 }}, sash.PerHour(100))
		bringDown(t, inner, store)
		if res, err := l.Peek(t.Context(), "k"); err != nil || res.Remaining != 0 || res.Source != driver.FromLocal {
			t.Errorf("%+v, %v", res, err)
		}
	})
}

// A probe whose caller has left still changes the store's state.
func TestAProbeCountsAfterItsCallerHasLeft(t *testing.T) {
	for name, c := range map[string]struct {
		after error
		want  failover.State
	}{"it is back": {nil, failover.Up}, "it is not": {errBroken, failover.Down}} {
		bubble(t, name, func(t *testing.T) {
			inner, store, l := outage(t, failover.Options{}, sash.PerHour(1000))
			bringDown(t, inner, store)
			time.Sleep(5 * time.Second)
			inner.becomes(func(context.Context) error { <-time.After(30 * time.Millisecond); return c.after })
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			if _, err := l.Allow(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
			if store.State() != failover.Probing {
				t.Errorf("the store is %v while the probe is under way", store.State())
			}
			time.Sleep(30 * time.Millisecond)
			synctest.Wait()
			if store.State() != c.want {
				t.Errorf("the store is %v when the probe is over", store.State())
			}
		})
	}
}

// Calls that were sent before the store came back, and whose budget ends after that, do not take it down again.
func TestFailuresFromBeforeTheRecoveryDoNotCount(t *testing.T) {
	for _, budget := range []time.Duration{50 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond} {
		bubble(t, budget.String(), func(t *testing.T) {
			inner := newFake()
			var back, again atomic.Int64
			store := guarded(t, inner, failover.Options{Budget: budget, Modes: always(failover.Open), OnChange: func(now failover.State, _ error) {
				switch {
				case now == failover.Up:
					back.Add(1)
				case now == failover.Down && back.Load() > 0:
					again.Add(1)
				}
			}})
			l := newLimiter(t, store, nil, sash.PerHour(90_000))
			works := time.Now().Add(budget + failover.DefaultBlip + 50*time.Millisecond)
			inner.becomes(func(ctx context.Context) error { // swallows what comes before
				if time.Now().Before(works) {
					return stalls(ctx)
				}
				return nil
			})
			var calls traffic
			calls.run(t, l, 100, 5*time.Second)
			calls.group.Wait()
			if back.Load() != 1 || again.Load() != 0 || store.State() != failover.Up {
				t.Errorf("it was back %d times and then down %d times, and is %v", back.Load(), again.Load(), store.State())
			}
		})
	}
}
