package stack_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/failover"
	"example.com/sash/memstore"
	"example.com/sash/stack"
	"example.com/sash/storetest"
)

// While the store is away the failure mode answers; when it is back, it decides again and counts what was admitted locally.
func TestAStoreThatGoesAndComesBack(t *testing.T) {
	for _, mode := range modes {
		for _, longest := range []time.Duration{0, 100 * time.Millisecond} {
			t.Run(fmt.Sprint(mode, " ", longest), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					inner := memstore.New(nil)
					store := storetest.NewFaulty(inner)
					s := newStack(t, store, &stack.Options{Failover: failover.Options{Modes: always(mode)}, Lease: longest})
					l := newLimiter(t, s, sash.PerHour(1000))
					for range 10 {
						allow(t, l, "k")
						time.Sleep(time.Second)
					}
					store.Fail(errors.New("LOADING Redis is loading the dataset in memory")) // which charges nothing
					for range 20 {
						want, admits := sash.FromPolicy, mode != failover.Closed
						if mode == failover.Local {
							want = sash.FromLocal
						}
						res, err := l.Allow(t.Context(), "k")
						if admits != (err == nil && res.Allowed && res.Source == want) || !admits && !errors.Is(err, sash.ErrUnavailable) {
							t.Fatalf("%+v, %v", res, err)
						}
						time.Sleep(time.Second)
					}
					store.Fail(nil)
					for back := time.Now(); ; time.Sleep(100 * time.Millisecond) {
						if res, err := l.AllowUpTo(t.Context(), "another", 1); err == nil && res.Source == sash.FromStore {
							break
						} else if time.Since(back) > 10*time.Second {
							t.Fatalf("after 10 s: %+v, %v", res, err)
						}
					}
					if err := s.Close(t.Context()); err != nil {
						t.Error(err)
					}
					want := int64(1000 - 10)
					if mode == failover.Local {
						want -= 20
					}
					if res, err := newLimiter(t, inner, sash.PerHour(1000)).Peek(t.Context(), "k"); err != nil || res.Remaining != want {
						t.Errorf("%d of 1000 are left, want %d: %v", res.Remaining, want, err)
					}
				})
			})
		}
	}
}

// Close leaves no goroutine (a bubble does not end while it has one) and no unit: what is leased goes back, and what was
// admitted locally is charged.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := memstore.New(nil)
		store := storetest.NewFaulty(inner)
		s := newStack(t, store, &stack.Options{Failover: failover.Options{Modes: always(failover.Local)}, Lease: time.Minute})
		l := newLimiter(t, s, sash.PerHour(10_000))
		for range 500 {
			allow(t, l, "k")
		}
		store.Fail(errors.New("LOADING Redis is loading the dataset in memory"))
		for range 7 {
			if _, err := l.AllowUpTo(t.Context(), "k", 1); err != nil {
				t.Fatal(err)
			}
		}
		store.Fail(nil)
		began := time.Now()
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 5*time.Second { // the lease would have lasted a minute
			t.Errorf("it took %v", took)
		}
		if res, err := newLimiter(t, inner, sash.PerHour(10_000)).Peek(t.Context(), "k"); err != nil || res.Remaining != 10_000-507 {
			t.Errorf("%d of 10000 are left, want %d: %v", res.Remaining, 10_000-507, err)
		}
	})
}

// Close returns when its context ends, and says what could not be done.
func TestCloseOverAStoreThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewFaulty(memstore.New(nil))
		s := newStack(t, store, &stack.Options{Failover: failover.Options{Modes: always(failover.Local)}, Lease: time.Minute})
		l := newLimiter(t, s, sash.PerHour(10_000))
		for range 500 {
			allow(t, l, "k")
		}
		store.Hang(nil)
		for range 7 {
			if _, err := l.AllowUpTo(t.Context(), "k", 1); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		began := time.Now()
		err := s.Close(ctx)
		if took := time.Since(began); took > 3*time.Second+failover.DefaultBudget {
			t.Errorf("it took %v", took)
		}
		if err == nil || !strings.Contains(err.Error(), "admitted locally") || !strings.Contains(err.Error(), "leases could not be given back") {
			t.Errorf("the error is %v", err)
		}
	})
}
