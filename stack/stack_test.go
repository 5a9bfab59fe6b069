package stack_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/lease"
	"example.com/sash/memstore"
	"example.com/sash/stack"
	"example.com/sash/stack/internal/coalesce"
	"example.com/sash/stack/internal/denials"
	"example.com/sash/storetest"
)

func newStack(t testing.TB, store driver.Store, opts *stack.Options) *stack.Store {
	t.Helper()
	s, err := stack.New(store, opts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func newLimiter(t testing.TB, store driver.Store, limits ...sash.Limit) *sash.Limiter {
	t.Helper()
	l, err := sash.New(store, nil, limits...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func allow(t testing.TB, l *sash.Limiter, key string) sash.Result {
	t.Helper()
	res, err := l.Allow(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func always(mode failover.Mode) failover.Modes {
	return failover.Modes{Rules: []failover.Rule{{Mode: mode}}}
}

var modes = []failover.Mode{failover.Closed, failover.Local, failover.Open}

// A store with decorators, or with options that are wrong, is an error that says what to do.
func TestWhatNewRejects(t *testing.T) {
	plain := memstore.New(nil)
	guarded, err := failover.New(plain, nil)
	if err != nil {
		t.Fatal(err)
	}
	leasing, err := lease.New(plain, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		store driver.Store
		opts  stack.Options
		says  string
	}{
		"no store":          {nil, stack.Options{}, "needs a store"},
		"failover":          {guarded, stack.Options{}, "decorator 1 of the store is a *failover.Store"},
		"denials":           {denials.New(plain, 0), stack.Options{}, "decorator 1 of the store is a *denials.Store"},
		"lease":             {leasing, stack.Options{}, "decorator 1 of the store is a *lease.Store"},
		"coalesce":          {coalesce.New(plain), stack.Options{}, "give it the store behind that"},
		"a stack":           {newStack(t, plain, nil), stack.Options{}, "decorator 1 of the store is a *stack.Store"},
		"behind others":     {driver.Passthrough{Next: coalesce.New(plain)}, stack.Options{}, "decorator 2 of the store is a *coalesce.Store"},
		"a lease too long":  {plain, stack.Options{Lease: time.Hour}, "the longest lease is whole microseconds from 1ms to 1m0s, not 1h"},
		"a negative lease":  {plain, stack.Options{Lease: -1}, "the longest lease"},
		"a negative budget": {plain, stack.Options{Failover: failover.Options{Budget: -1}}, "Budget"},
		"a negative MaxAge": {plain, stack.Options{MaxAge: -1}, "MaxAge"},
		"an open guard": {plain, stack.Options{Failover: failover.Options{
			Modes: failover.Modes{Guard: true, Rules: []failover.Rule{{Mode: failover.Open}}}}}, "guard a secret"},
	} {
		t.Run(name, func(t *testing.T) {
			if s, err := stack.New(c.store, &c.opts); s != nil || err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, %v; want an error with %q", s, err, c.says)
			}
		})
	}
}

// A decorator of the caller's, such as one that counts calls, may stand before the store.
func TestOtherDecoratorsMayStandBeforeTheStore(t *testing.T) {
	l := newLimiter(t, newStack(t, driver.Passthrough{Next: memstore.New(nil)}, nil), sash.PerHour(10))
	if res := allow(t, l, "k"); !res.Allowed || res.Source != sash.FromStore {
		t.Errorf("%+v", res)
	}
}

// The order is that of docs/ARCHITECTURE.md.
func TestTheOrder(t *testing.T) {
	for want, longest := range map[string]time.Duration{
		"*stack.Store *denials.Store *coalesce.Store *memstore.Store":              0,
		"*stack.Store *denials.Store *lease.Store *coalesce.Store *memstore.Store": time.Second,
	} {
		var store driver.Store = newStack(t, memstore.New(nil), &stack.Options{Lease: longest})
		order := fmt.Sprintf("%T", store)
		for d, ok := store.(driver.Decorator); ok; d, ok = d.Unwrap().(driver.Decorator) {
			order += fmt.Sprintf(" %T", d.Unwrap())
		}
		if order != want {
			t.Errorf("%s, want %s", order, want)
		}
	}
}

// A far store is in memory, a millisecond away, and counts the calls that reach it.
type far struct {
	*memstore.Store
	calls atomic.Int64
}

func (f *far) Decide(ctx context.Context, req driver.Request) (driver.Answer, error) {
	f.calls.Add(1)
	time.Sleep(time.Millisecond)
	return f.Store.Decide(ctx, req)
}

func (f *far) DecideEach(ctx context.Context, reqs []driver.Request) ([]driver.Answer, error) {
	f.calls.Add(1)
	time.Sleep(time.Millisecond)
	return driver.Passthrough{Next: f.Store}.DecideEach(ctx, reqs)
}

// A caller over its limit comes every 10 ms for 10 s. It reaches the store once for each denial, which lasts a second, or
// once for each refusal that lease keeps, for two longest leases. With lease alone each call reaches the store where the
// limit is not leased: because it has too few units, or is one of the calendar.
func TestRefusedCallsReachTheStoreSeldom(t *testing.T) {
	stacked := func(longest time.Duration) func(*testing.T, driver.Store) driver.Store {
		return func(t *testing.T, store driver.Store) driver.Store {
			return newStack(t, store, &stack.Options{Lease: longest})
		}
	}
	alone := func(t *testing.T, store driver.Store) driver.Store {
		s, err := lease.New(store, 100*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for _, c := range []struct {
		name        string
		open        func(*testing.T, driver.Store) driver.Store
		limit       sash.Limit
		least, most int64 // calls of 1,000 that reach the store
	}{
		{"stack, 10 an hour", stacked(0), sash.PerHour(10), 10, 10},
		{"stack, 1000 an hour", stacked(0), sash.PerHour(1000), 10, 10},
		{"stack with leases, 10 an hour", stacked(100 * time.Millisecond), sash.PerHour(10), 10, 10},
		{"stack with leases, 100 a day", stacked(100 * time.Millisecond), sash.PerCalendar(100, sash.CalendarDay, time.UTC), 10, 10},
		{"stack with leases, 1000 an hour", stacked(100 * time.Millisecond), sash.PerHour(1000), 1, 50},
		{"lease alone, 10 an hour", alone, sash.PerHour(10), 1000, 1000},
		{"lease alone, 100 a day", alone, sash.PerCalendar(100, sash.CalendarDay, time.UTC), 1000, 1000},
		{"lease alone, 1000 an hour", alone, sash.PerHour(1000), 1, 50},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &far{Store: memstore.New(nil)}
				l := newLimiter(t, c.open(t, store), c.limit)
				for admitted := true; admitted; {
					admitted = allow(t, l, "k").Allowed
				}
				time.Sleep(2 * time.Second) // what was kept of the first refusal is over
				store.calls.Store(0)
				ticks := time.NewTicker(10 * time.Millisecond)
				defer ticks.Stop()
				for range 1000 {
					<-ticks.C
					if allow(t, l, "k").Allowed {
						t.Fatal("admitted over the limit")
					}
				}
				n := store.calls.Load()
				t.Logf("%d of 1000 refused calls reached the store", n)
				if n < c.least || n > c.most {
					t.Errorf("%d of 1000 calls reached the store, want %d to %d", n, c.least, c.most)
				}
			})
		})
	}
}

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

// leasing returns a stack over a store, and a limiter that has leased units by it and spent 500.
func leasing(t *testing.T, store driver.Store) (*stack.Store, *sash.Limiter) {
	t.Helper()
	s := newStack(t, store, &stack.Options{Failover: failover.Options{Modes: always(failover.Local)}, Lease: time.Minute})
	l := newLimiter(t, s, sash.PerHour(10_000))
	for range 500 {
		allow(t, l, "k")
	}
	return s, l
}

// Close leaves no goroutine (a bubble does not end while it has one) and no unit: what is leased goes back, and what was
// admitted locally is charged.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := memstore.New(nil)
		store := storetest.NewFaulty(inner)
		s, l := leasing(t, store)
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
		s, l := leasing(t, store)
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
