package failover_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
)

// giveUp asks n times and gives up after 10 ms.
func giveUp(t *testing.T, l *sash.Limiter, n int) {
	t.Helper()
	for range n {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		start := time.Now()
		_, err := l.Allow(ctx, "k")
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, sash.ErrUnavailable) {
			t.Fatalf("the error is %v", err)
		}
		if took := time.Since(start); took != 10*time.Millisecond {
			t.Fatalf("a caller who gave up after 10 ms waited %v", took)
		}
		cancel()
	}
}

// Callers with less time than the budget find out that the store is down as others do: it has its whole time.
func TestAStoreIsFoundDownByCallersWhoGiveUp(t *testing.T) {
	for name, does := range map[string]func(context.Context) error{"it heeds its context": stalls, "it does not": hangs(time.Hour)} {
		failover.Bubble(t, name, func(t *testing.T) {
			inner, store, l := outage(t, failover.Options{Modes: always(failover.Open)}, sash.PerHour(10))
			inner.becomes(does)
			giveUp(t, l, 21)
			time.Sleep(50 * time.Millisecond) // the last one's budget
			synctest.Wait()
			if store.State() != failover.Down {
				t.Errorf("the store is %v", store.State())
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			if res, err := l.Allow(ctx, "k"); err != nil || !res.Allowed || res.Source != driver.FromPolicy {
				t.Errorf("the next caller with 10 ms: %+v, %v", res, err)
			}
			time.Sleep(2 * time.Hour)
		})
	}
}

func TestErrorsAboutTheCallPassAndTripNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFake()
		store := guarded(t, inner, failover.Options{Modes: always(failover.Open)})
		policy := failover.Must(sash.NewPolicy(nil, sash.PerHour(10)))(t)
		for _, want := range []error{driver.ErrApart, driver.ErrUnsupported, sash.ErrInvalidLimit} {
			inner.becomes(fails(want))
			for range 10 {
				if _, err := driver.Decide(t.Context(), store, driver.Request{Key: "k", Cost: 1, Policy: policy}); !errors.Is(err, want) {
					t.Fatalf("the error is %v, want %v", err, want)
				}
			}
		}
		if store.State() != failover.Up {
			t.Errorf("the store is %v", store.State())
		}
	})
}

// A store that panics has failed: the policy answers, and the process goes on.
func TestAStoreThatPanicsHasFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFake()
		var reported error
		store := guarded(t, inner, failover.Options{
			Modes:   failover.Modes{Rules: []failover.Rule{{MaxCost: 1, Mode: failover.Local}}},
			OnError: func(err error, _ failover.Kind) { reported = err },
		})
		l := newLimiter(t, store, nil, sash.PerHour(10))
		inner.becomes(func(context.Context) error { panic("index out of range") })
		if res := allow(t, l, "k", 1); !res.Allowed || res.Source != driver.FromLocal {
			t.Errorf("%+v", res)
		}
		if !errors.Is(reported, sash.ErrUnavailable) || !strings.Contains(reported.Error(), "index out of range") {
			t.Errorf("reported: %v", reported)
		}
		if _, err := l.AllowN(t.Context(), "k", 2); !errors.Is(err, sash.ErrUnavailable) {
			t.Errorf("in mode closed: %v", err)
		}
		if got := store.Stats(); got.InFlight != 0 || got.Doubtful != 1 {
			t.Errorf("%+v", got)
		}
		for range 5 {
			allow(t, l, "k", 1)
			time.Sleep(failover.DefaultBlip / 4)
		}
		if store.State() != failover.Down {
			t.Errorf("a store that panics each time is %v", store.State())
		}
	})
}

// What is late is judged in a goroutine that no caller is on.
func TestAPanicOfTheUserIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, calls := newFake(), map[string]int{}
		panics := func(name string) {
			calls[name]++
			panic(name)
		}
		store := guarded(t, inner, failover.Options{
			Modes:    always(failover.Open),
			OnError:  func(error, failover.Kind) { panics("OnError") },
			OnChange: func(failover.State, error) { panics("OnChange") },
			Classify: func(error) failover.Kind { panics("Classify"); return failover.Unsent },
		})
		l := newLimiter(t, store, nil, sash.PerHour(1000))
		for _, does := range []func(context.Context) error{fails(errBroken), stalls, hangs(time.Second)} {
			for range 10 {
				inner.becomes(does)
				if res := allow(t, l, "k", 1); res.Source != driver.FromPolicy {
					t.Errorf("%+v", res)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond) // it leaves, and its call goes on
				_, _ = l.Allow(ctx, "k")
				cancel()
				time.Sleep(10 * time.Second)
			}
		}
		if len(calls) != 3 {
			t.Errorf("only some panicked: %v", calls)
		}
		bringBack(t, inner, store)
		if res := allow(t, l, "k", 1); res.Source != driver.FromStore || store.Stats().InFlight != 0 {
			t.Errorf("after that: %+v, %+v", res, store.Stats())
		}
	})
}
