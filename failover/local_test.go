package failover_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/memstore"
	"example.com/sash/storetest"
)

func TestLocallyThisProcessHasItsShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		instances := 4
		inner := newFake()
		store := guarded(t, inner, failover.Options{Modes: always(failover.Local), Instances: func() int { return instances }})
		bringDown(t, inner, store)
		for units, c := range map[int64]struct{ instances, share int }{
			100: {4, 25}, 99: {4, 24}, 3: {4, 0}, 4: {4, 1}, 7: {1, 7}, 8: {0, 0}, 9: {-1, 0},
		} {
			instances = c.instances
			for _, a := range sash.Algorithms() {
				l := newLimiter(t, store, algorithm(a), sash.PerHour(units))
				key := sash.Key(time.Duration(units).String(), a.String())
				if got := admit(t, l, key, 40); got != c.share {
					t.Errorf("%v: %d of %d units were admitted by one of %d", a, got, units, c.instances)
				}
			}
		}
	})
}

func TestAPolicyForgetsNoShareWhenTheInstancesChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		instances := 2
		inner, store, l := outage(t, failover.Options{Modes: always(failover.Local), Instances: func() int { return instances }}, sash.PerHour(100))
		bringDown(t, inner, store)
		if got := admit(t, l, "k", 60); got != 50 {
			t.Errorf("%d were admitted by one of two", got)
		}
		instances = 1
		if got := admit(t, l, "k", 110); got != 50 {
			t.Errorf("%d more were admitted by the only one, want the other 50", got)
		}
		instances = 5
		if got := admit(t, l, "k", 10); got != 0 {
			t.Errorf("%d were admitted by one of five", got)
		}
	})
}

func TestARefusalTellsOfTheShareInTheCallersTerms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFake()
		store := guarded(t, inner, failover.Options{Modes: always(failover.Local), Instances: four})
		bringDown(t, inner, store)
		limits := []sash.Limit{sash.Every(8, 10*time.Second), sash.PerHour(100)}
		limits[0].Name = "burst"
		l := newLimiter(t, store, nil, limits...)
		allow(t, l, "k", 2)
		time.Sleep(3 * time.Second)
		res := allow(t, l, "k", 1)
		by, ok := res.RefusedBy()
		if !ok || by.Limit.Name != "burst" || by.Limit.Units != 8 || by.Key != "k" || res.Remaining != 0 || res.RetryAfter != 7*time.Second {
			t.Errorf("%+v by %+v", res, by)
		}
		time.Sleep(res.RetryAfter - time.Microsecond)
		inner.becomes(fails(errRefused))
		if allow(t, l, "k", 1).Allowed {
			t.Error("admitted a microsecond before RetryAfter")
		}
		time.Sleep(time.Microsecond)
		if !allow(t, l, "k", 1).Allowed {
			t.Error("refused after RetryAfter")
		}
		if res := allow(t, l, "another", 3); res.Allowed || res.RetryAfter < 50*time.Millisecond || res.RetryAfter > 2*time.Second || res.Remaining != 2 {
			t.Errorf("more than the share: %+v", res)
		}
	})
}

func TestSwitchingOverHandsOutNoFreshLimit(t *testing.T) {
	for _, a := range sash.Algorithms() {
		for name, c := range map[string]struct {
			instances, before, after int
			limits                   []sash.Limit
		}{
			"the share is used":             {4, 30, 0, []sash.Limit{sash.PerHour(100)}},
			"some of the share is left":     {4, 20, 5, []sash.Limit{sash.PerHour(100)}},
			"there is no share":             {200, 20, 0, []sash.Limit{sash.PerHour(100)}},
			"all but the long one has left": {2, 20, 5, []sash.Limit{sash.PerSecond(60), sash.PerHour(50)}},
		} {
			bubble(t, a.String()+"/"+name, func(t *testing.T) {
				time.Sleep(time.Second) // from a boundary
				inner := newFake()
				store := guarded(t, inner, failover.Options{
					Modes: always(failover.Local), Instances: func() int { return c.instances },
				})
				l := newLimiter(t, store, algorithm(a), c.limits...)
				if got := admit(t, l, "k", c.before); got != c.before {
					t.Fatalf("%d of %d were admitted while the store worked", got, c.before)
				}
				if len(c.limits) > 1 {
					time.Sleep(2 * time.Second)
				}
				bringDown(t, inner, store)
				if got := admit(t, l, "k", 100); got != c.after {
					t.Errorf("%d more were admitted locally, want %d", got, c.after)
				}
			})
		}
	}
}

func TestReservationsAreSettledWhereTheyWereCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, store, l := outage(t, failover.Options{Modes: always(failover.Local), Instances: four}, sash.PerHour(100))
		there, err := l.Reserve(t.Context(), "k", 10)
		if err != nil {
			t.Fatal(err)
		}
		bringDown(t, inner, store)
		here, err := l.Reserve(t.Context(), "k", 15)
		if err != nil || !here.Allowed() {
			t.Fatal(here.Allowed(), err)
		}
		if allow(t, l, "k", 1).Allowed {
			t.Error("more than the share was admitted")
		}
		if err := there.Settle(t.Context(), 2); !errors.Is(err, sash.ErrUnavailable) {
			t.Errorf("settling at a store that is down: %v", err)
		}
		if err := here.Settle(t.Context(), 5); err != nil {
			t.Error(err)
		}
		if got := admit(t, l, "k", 20); got != 10 {
			t.Errorf("%d were admitted after 10 were given back", got)
		}
		bringBack(t, inner, store)
		if err := there.Settle(t.Context(), 2); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if left := remaining(t, inner, sash.PerHour(100)); left != 100-2-5-10 {
			t.Errorf("%d of 100 are left in the store", left)
		}
	})
}

// remaining asks a store itself what is left of the key k.
func remaining(t *testing.T, store *fake, limits ...sash.Limit) int64 {
	t.Helper()
	res, err := newLimiter(t, store.Store, nil, limits...).Peek(context.Background(), "k")
	if err != nil {
		t.Fatal(err)
	}
	return res.Remaining
}

// A call for as much as fits takes what is left of the share, and exactly that is written to the store later.
func TestAsMuchAsFitsIsOfTheShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, store, l := outage(t, failover.Options{Modes: always(failover.Local), Instances: four}, sash.PerHour(100))
		bringDown(t, inner, store)
		for _, want := range []int64{20, 5, 0} {
			res, err := l.AllowUpTo(t.Context(), "up to", 20)
			if err != nil || res.Charged != want || res.Allowed != (want > 0) || res.Source != sash.FromLocal {
				t.Errorf("up to 20 of what is left of 25: %+v, %v; want %d", res, err, want)
			}
		}
		if res, err := l.Penalize(t.Context(), "bad", 300); err != nil || res.Allowed {
			t.Errorf("%+v, %v", res, err)
		}
		if _, err := l.Reward(t.Context(), "up to", 5); !errors.Is(err, sash.ErrUnavailable) {
			t.Errorf("units are given back while the store is down: %v", err)
		}
		inner.becomes(nil)
		time.Sleep(5 * time.Second)
		behind := newLimiter(t, inner.Store, nil, sash.PerHour(100))
		for key, left := range map[string]int64{"up to": 75, "bad": 0} {
			if res, err := behind.Peek(t.Context(), key); err != nil || res.Remaining != left {
				t.Errorf("%s: %d of 100 remain in the store, want %d (%v)", key, res.Remaining, left, err)
			}
		}
		if res, err := l.AllowUpTo(t.Context(), "up to", 70); err != nil || res.Charged != 70 || res.Source != sash.FromStore {
			t.Errorf("%+v, %v", res, err)
		}
		if res, err := l.Reward(t.Context(), "up to", 95); err != nil || res.Charged != 95 || res.Remaining != 100 {
			t.Errorf("%+v, %v", res, err)
		}
	})
}

func TestASlotIsExtendedWhereItWasTaken(t *testing.T) {
	for mode, want := range map[failover.Mode]error{failover.Open: nil, failover.Local: driver.ErrUnsupported} {
		t.Run(mode.String(), func(t *testing.T) {
			inner := storetest.NewFaulty(memstore.New(nil))
			c, err := sash.NewConcurrency(guarded(t, inner, failover.Options{Modes: always(mode)}), nil, 3, time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			slot, err := c.Start(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			if held, err := slot.Extend(t.Context()); err != nil || !held {
				t.Errorf("while the store is up: %v, %v", held, err)
			}
			inner.Fail(errors.New("broken"))
			if _, err := slot.Extend(t.Context()); !errors.Is(err, sash.ErrUnavailable) {
				t.Errorf("while the store is down: %v", err)
			}
			instead, err := c.Start(t.Context(), "k")
			if err != nil || !instead.Allowed() {
				t.Fatalf("%+v, %v", instead, err)
			}
			if held, err := instead.Extend(t.Context()); !errors.Is(err, want) || held != (want == nil) {
				t.Errorf("a slot that was taken while the store is down: %v, %v", held, err)
			}
			if err := instead.Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
