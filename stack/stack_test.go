package stack_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/internal/drivertest"
	"example.com/sash/lease"
	"example.com/sash/memstore"
	"example.com/sash/stack"
	"example.com/sash/stack/internal/coalesce"
	"example.com/sash/stack/internal/denials"
	"example.com/sash/storetest"
)

// must returns a function that returns the value, or fails the test at once after an error: must(f())(t).
func must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func newStack(t testing.TB, store driver.Store, opts *stack.Options) *stack.Store {
	t.Helper()
	return must(stack.New(store, opts))(t)
}

func newLimiter(t testing.TB, store driver.Store, limits ...sash.Limit) *sash.Limiter {
	t.Helper()
	return must(sash.New(store, nil, limits...))(t)
}

func allow(t testing.TB, l *sash.Limiter, key string) sash.Result {
	t.Helper()
	return must(l.Allow(t.Context(), key))(t)
}

// A store with decorators, or with options that are wrong, is an error that says what to do.
func TestWhatNewRejects(t *testing.T) {
	plain := memstore.New(nil)
	guarded := must(failover.New(plain, nil))(t)
	leasing := must(lease.New(plain, time.Second))(t)
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
		"behind others":     {driver.Passthrough{Store: coalesce.New(plain)}, stack.Options{}, "decorator 2 of the store is a *coalesce.Store"},
		"a lease too long":  {plain, stack.Options{Lease: time.Hour}, "the longest lease is whole microseconds from 1ms to 1m0s, not 1h"},
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
	l := newLimiter(t, newStack(t, driver.Passthrough{Store: memstore.New(nil)}, nil), sash.PerHour(10))
	if res := allow(t, l, "k"); !res.Allowed || res.Source != sash.FromStore {
		t.Errorf("%+v", res)
	}
}

type unwraps interface{ Unwrap() driver.Store }

// The order is that of docs/ARCHITECTURE.md.
func TestTheOrder(t *testing.T) {
	for want, longest := range map[string]time.Duration{
		"*stack.Store *denials.Store *coalesce.Store *memstore.Store":              0,
		"*stack.Store *denials.Store *lease.Store *coalesce.Store *memstore.Store": time.Second,
	} {
		var store driver.Store = newStack(t, memstore.New(nil), &stack.Options{Lease: longest})
		order := fmt.Sprintf("%T", store)
		for d, ok := store.(unwraps); ok; d, ok = d.Unwrap().(unwraps) {
			order += fmt.Sprintf(" %T", d.Unwrap())
		}
		if order != want {
			t.Errorf("%s, want %s", order, want)
		}
	}
}

// leasing returns a stack over a store, and a limiter that has leased units by it and spent 500.
func leasing(t *testing.T, store driver.Store) (*stack.Store, *sash.Limiter) {
	t.Helper()
	local := failover.Modes{Rules: []failover.Rule{{Mode: failover.Local}}}
	s := newStack(t, store, &stack.Options{Failover: failover.Options{Modes: local}, Lease: time.Minute})
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
			_ = must(l.AllowUpTo(t.Context(), "k", 1))(t)
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

// A batch is its caller's again when Do returns, also where the caller has left before the store has answered.
func TestNoBatchIsUsedAfterItsCallerHasLeft(t *testing.T) {
	local := failover.Modes{Rules: []failover.Rule{{Mode: failover.Local}}}
	for name, over := range map[string]func(driver.Store) (driver.Store, error){
		"group commit": func(s driver.Store) (driver.Store, error) { return stack.GroupCommit(s), nil },
		"denial cache": func(s driver.Store) (driver.Store, error) { return stack.DenialCache(s), nil },
		"lease":        func(s driver.Store) (driver.Store, error) { return lease.New(s, time.Second) },
		"failover":     func(s driver.Store) (driver.Store, error) { return failover.New(s, nil) },
		"mode local": func(s driver.Store) (driver.Store, error) {
			return failover.New(s, &failover.Options{Budget: 3 * time.Millisecond, Modes: local, Local: memstore.New(nil)})
		},
		"all": func(s driver.Store) (driver.Store, error) { return stack.New(s, &stack.Options{Lease: time.Second}) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := must(over(slow(memstore.New(nil), 2*time.Millisecond)))(t)
				policy := must(sash.NewPolicy(nil, sash.Every(500, time.Second)))(t)
				leave(t, store, policy)
			})
		})
	}
}

// slow returns a store that carries out a batch after a time, whether or not the caller waits, and answers as much later.
func slow(next driver.Store, takes time.Duration) driver.Store {
	return drivertest.Over(next, func(ctx context.Context, b *driver.Batch) error {
		time.Sleep(takes)
		defer time.Sleep(takes)
		return next.Do(context.WithoutCancel(ctx), b)
	})
}

// leave makes calls of every kind under a policy, of which most callers leave before the answer, and use the batch for something
// else at once. So the race detector finds a store that goes on with the batch of a caller who has left. It needs a bubble.
func leave(t testing.TB, store driver.Store, policy *driver.Policy) {
	var group sync.WaitGroup
	for i := range 200 {
		of := func(key any) driver.Settlement {
			return driver.Settlement{Request: driver.Request{Key: fmt.Sprint(key), Cost: 1, Policy: policy, MaySettle: true}, At: int64(i)}
		}
		booked, once := of(i%3), of(i%3)
		booked.Within, once.ID = driver.MaxAhead, fmt.Sprint(i)
		for j, b := range []*driver.Batch{
			{Ops: []driver.Op{{Settlement: of(i % 3)}}}, {Ops: []driver.Op{{Settlement: booked}}}, {Ops: []driver.Op{{Settlement: once}}},
			{Ops: []driver.Op{{Settlement: of("a")}, {Settlement: of("b")}}},
			{Mode: driver.Any, Ops: []driver.Op{{Settlement: of("a")}, {Settlement: of("b")}}},
			{Mode: driver.Each, Ops: []driver.Op{{Settlement: of("a")}, {Settlement: of("a")}}},
			{Mode: driver.Each, Ops: []driver.Op{{Kind: driver.Settle, Settlement: of("a")}, {Kind: driver.Settle, Settlement: of("b")}}},
			{Ops: []driver.Op{{Kind: driver.Extend, Settlement: of("a")}}}, {Ops: []driver.Op{{Kind: driver.GiveBack, Settlement: of("a")}}},
			{Ops: []driver.Op{{Kind: driver.Forget, Settlement: of("b")}}}, {Ops: []driver.Op{{Kind: driver.Cool, Settlement: of("a")}}},
		} {
			group.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration((i+j)%7)*time.Millisecond)
				defer cancel()
				_ = store.Do(ctx, b)
				b.Mode, b.Chosen = driver.Each, -1
				for k := range b.Ops {
					b.Ops[k] = driver.Op{Kind: 255}
				}
			})
		}
		time.Sleep(time.Millisecond)
	}
	group.Wait()
	time.Sleep(time.Minute) // for what goes on in the background
	synctest.Wait()
}
