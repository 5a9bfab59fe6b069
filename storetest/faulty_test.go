package storetest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
	_ "time/tzdata" // the zones, also where the system has none

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/judge"
	"example.com/sash/memstore"
	"example.com/sash/storetest"
)

func TestAFaultyStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewFaulty(memstore.New(nil))
		limiter, err := sash.New(store, nil, sash.PerHour(5))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		ok := func(want error) {
			t.Helper()
			_, err := limiter.Allow(ctx, "k")
			_, reserved, all := limiter.ReserveAll(ctx, sash.Subject{Key: "k", Cost: 1}, sash.Subject{Key: "l", Cost: 1})
			reset := limiter.Reset(ctx, "k")
			for _, err := range []error{err, all, reset} {
				if !errors.Is(err, want) {
					t.Errorf("%v, want %v", err, want)
				}
			}
			if (reserved != nil) != (want == nil) {
				t.Errorf("%d reservations", len(reserved))
			}
		}
		ok(nil)
		store.Fail(errors.New("connection refused"))
		ok(sash.ErrUnavailable)
		store.Fail(nil)
		ok(nil)
		began := time.Now()
		store.Slow(2 * time.Second)
		if res, err := limiter.Allow(ctx, "k"); err != nil || !res.Allowed || time.Since(began) != 2*time.Second {
			t.Errorf("after %v: %+v, %v", time.Since(began), res, err)
		}
		store.Slow(time.Hour)
		ok(context.DeadlineExceeded)
		if time.Since(began) != time.Minute {
			t.Errorf("the context of a minute has ended after %v", time.Since(began))
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		calls := make(chan struct{}, 3)
		store.Hang(calls)
		ok(context.DeadlineExceeded)
		if len(calls) == 0 {
			t.Error("no call reports that it hangs")
		}
	})
}

// While decisions are refused, every kind of call is, and nothing is charged.
func TestAStoreThatRefuses(t *testing.T) {
	ctx, store := t.Context(), storetest.NewFaulty(memstore.New(nil))
	limiter, err := sash.New(store, nil, sash.PerHour(5), sash.PerDay(9))
	if err != nil {
		t.Fatal(err)
	}
	slots, err := sash.NewConcurrency(store, nil, 1, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	store.Refuse(30 * time.Second)
	pair := []sash.Subject{{Key: "k", Cost: 1}, {Key: "l", Cost: 1}}
	for name, call := range map[string]func() (sash.Result, error){
		"Allow":     func() (sash.Result, error) { return limiter.Allow(ctx, "k") },
		"AllowAll":  func() (sash.Result, error) { return limiter.AllowAll(ctx, pair...) },
		"AllowAny":  func() (sash.Result, error) { _, res, err := limiter.AllowAny(ctx, pair...); return res, err },
		"AllowOnce": func() (sash.Result, error) { return limiter.AllowOnce(ctx, "id", "k", 1) },
		"AllowUpTo": func() (sash.Result, error) { return limiter.AllowUpTo(ctx, "k", 3) },
		"Book": func() (sash.Result, error) {
			r, err := limiter.Book(ctx, "k", 1, time.Hour)
			return r.Result(), err
		},
		"Start": func() (sash.Result, error) {
			slot, err := slots.Start(ctx, "k")
			return slot.Result(), err
		},
	} {
		res, err := call()
		by, refused := res.RefusedBy()
		if err != nil || !refused || res.RetryAfter != 30*time.Second || by.Limit.Name == "" {
			t.Errorf("%s: %+v, %v", name, res, err)
		}
	}
	if res, err := limiter.Peek(ctx, "k"); err != nil || res.Remaining != 5 {
		t.Errorf("%d are left after refusals, %v", res.Remaining, err)
	}
	store.Fail(nil)
	if res, err := limiter.Allow(ctx, "k"); err != nil || !res.Allowed {
		t.Errorf("afterwards: %+v, %v", res, err)
	}
}

func TestMemstore(t *testing.T) { conforms(t, func(s *memstore.Store) driver.Store { return s }) }

// A store without a power has no cases of it.
func TestAStoreThatOnlyDecides(t *testing.T) {
	conforms(t, func(s *memstore.Store) driver.Store { return struct{ driver.Store }{s} }, sash.SlidingLog, sash.GCRA)
}

func conforms(t *testing.T, store func(*memstore.Store) driver.Store, algorithms ...sash.Algorithm) {
	storetest.Run(t, func(*testing.T) storetest.Harness {
		clock := judge.NewClock(time.Date(2026, 5, 4, 10, 0, 0, 123_456_000, time.UTC))
		return storetest.Harness{
			Store:   store(memstore.New(&memstore.Options{Now: clock.Now})),
			Now:     clock.Now,
			Advance: clock.Advance,
		}
	}, algorithms...)
}
