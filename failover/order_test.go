package failover_test

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/coalesce"
	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/lease"
	"example.com/sash/memstore"
)

// Joined calls would be answered by the policy for their sum. So behind coalesce each call is decided alone.
func TestCoalesceOverFailoverKeepsThePolicyOfEachCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFake()
		store := guarded(t, inner, failover.Options{Modes: failover.Modes{Rules: []failover.Rule{{MaxCost: 1, Mode: failover.Open}}}})
		l := newLimiter(t, coalesce.New(store), nil, sash.PerHour(100_000))
		inner.becomes(hangs(10 * time.Second))
		var group sync.WaitGroup
		for range 64 {
			group.Go(func() {
				for range 40 {
					if res, err := l.Allow(t.Context(), "k"); err != nil || !res.Allowed {
						t.Errorf("a call of cost 1: %+v, %v", res, err)
						return
					}
				}
			})
		}
		group.Wait()
		time.Sleep(time.Minute)
	})
}

func TestLeaseOverFailoverIsRefused(t *testing.T) {
	store := guarded(t, newFake(), failover.Options{})
	for name, inner := range map[string]driver.Store{"failover": store, "coalesce over failover": coalesce.New(store)} {
		if _, err := lease.New(inner, time.Second); err == nil {
			t.Errorf("leases over %s", name)
		}
	}
}

// In the order that is documented, an outage is answered by the policy call by call, and what comes back is asked.
func TestDecoratorsInTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFake()
		leased, err := lease.New(coalesce.New(inner), 100*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		store := guarded(t, leased, failover.Options{
			Local: memstore.New(nil),
			Modes: failover.Modes{Rules: []failover.Rule{{MaxCost: 1, Mode: failover.Open}, {MaxCost: 2, Mode: failover.Local}}},
		})
		l := newLimiter(t, store, nil, sash.PerHour(1000))
		ask := func(calls int) {
			var group sync.WaitGroup
			for i := range calls {
				group.Go(func() {
					cost := 1 + int64(i%3)
					res, err := l.AllowN(t.Context(), "k", cost)
					if cost < 3 && err != nil || err != nil && !errors.Is(err, sash.ErrUnavailable) {
						t.Errorf("cost %d: %+v, %v", cost, res, err)
					}
				})
			}
			group.Wait()
		}
		ask(60)
		inner.becomes(fails(errRefused))
		for range 10 {
			time.Sleep(200 * time.Millisecond) // until what is leased and what is refused has ended
			for range 5 {
				ask(60)
				time.Sleep(failover.DefaultBlip / 4)
			}
			if store.State() != failover.Up {
				break
			}
		}
		if store.State() == failover.Up {
			t.Error("nothing failed")
		}
		bringBack(t, inner, store)
		for range 5 {
			if res := allow(t, l, "k", 3); res.Source == driver.FromLocal || res.Source == driver.FromPolicy {
				t.Errorf("when the store is back: %+v", res)
			}
		}
		time.Sleep(time.Minute)
	})
}
