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

func TestARefusalTellsOfTheShareInTheCallersTerms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		burst := sash.Every(8, 10*time.Second)
		burst.Name = "burst"
		inner, store, l := outage(t, inFour, burst, sash.PerHour(100))
		bringDown(t, inner, store)
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

// remaining asks a store itself what is left of the key k.
func remaining(t *testing.T, store *fake, limits ...sash.Limit) int64 {
	t.Helper()
	res := failover.Must(newLimiter(t, store.Store, nil, limits...).Peek(context.Background(), "k"))(t)
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
			c := failover.Must(sash.NewConcurrency(guarded(t, inner, failover.Options{Modes: always(mode)}), nil, 3, time.Hour))(t)
			slot := failover.Must(c.Start(t.Context(), "k"))(t)
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
