package failover_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
)

// A store that is forced down gets no call, until that is lifted or over.
func TestForcedDown(t *testing.T) {
	for name, lift := range map[string]bool{"until it is lifted": true, "for a minute": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := newFake()
				store := guarded(t, inner, failover.Options{Modes: always(failover.Open)})
				l := newLimiter(t, store, nil, sash.PerHour(1000))
				var until time.Time
				if !lift {
					until = time.Now().Add(time.Minute)
				}
				if err := store.Force(failover.Down, until); err != nil {
					t.Fatal(err)
				}
				for range 59 {
					if res := allow(t, l, "k", 1); res.Source != driver.FromPolicy || !errors.Is(res.Cause, failover.ErrDown) {
						t.Fatalf("%+v", res)
					}
					if err := store.Probe(t.Context()); !errors.Is(err, failover.ErrDown) {
						t.Fatal(err)
					}
					time.Sleep(time.Second)
				}
				forced, ok := store.Forced()
				if calls, _ := inner.seen(); calls != 0 || store.State() != failover.Down || !ok || !forced.Until.Equal(until) {
					t.Errorf("it got %d calls and is %v; %+v", calls, store.State(), forced)
				}
				if lift {
					store.Lift()
				}
				time.Sleep(time.Second)
				if _, ok := store.Forced(); ok || store.State() != failover.Up || allow(t, l, "k", 1).Source != driver.FromStore {
					t.Errorf("it is %v, and forced: %v", store.State(), ok)
				}
			})
		})
	}
}

// A store that is forced up gets every call, also if it fails, and what it did counts again when that is lifted.
func TestForcedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFake()
		store := guarded(t, inner, failover.Options{Modes: always(failover.Open)})
		l := newLimiter(t, store, nil, sash.PerHour(1000))
		bringDown(t, inner, store)
		if err := store.Force(failover.Up, time.Time{}); err != nil {
			t.Fatal(err)
		}
		inner.becomes(fails(errRefused))
		for range 100 {
			allow(t, l, "k", 1)
			time.Sleep(10 * time.Millisecond)
		}
		if calls, _ := inner.seen(); calls != 100 || store.State() != failover.Up {
			t.Errorf("it got %d of 100 calls and is %v", calls, store.State())
		}
		store.Lift()
		if store.State() != failover.Down {
			t.Errorf("without the force it is %v", store.State())
		}
		if store.Force(failover.Probing, time.Time{}) == nil {
			t.Error("it is forced to be probing")
		}
	})
}
