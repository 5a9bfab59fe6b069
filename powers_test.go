package sash_test

import (
	"errors"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/lease"
	"example.com/sash/memstore"
	"example.com/sash/stack"
)

// plain is a store that decides and can do nothing else.
type plain struct{ driver.Store }

// layers stand before a store, one before the other too.
func layers(t *testing.T, store driver.Store) map[string]driver.Store {
	t.Helper()
	guard := func(store driver.Store) driver.Store {
		guarded, err := failover.New(store, nil)
		if err != nil {
			t.Fatal(err)
		}
		return guarded
	}
	leased, err := lease.New(store, time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]driver.Store{
		"none": store, "coalesce": stack.GroupCommit(store), "lease": leased, "failover": guard(store),
		"failover, coalesce and lease": guard(stack.GroupCommit(leased)),
	}
}

// Before a store that lacks a power there is nothing that has it: a limiter says so at once, before it charges.
func TestADecoratorHasOnlyThePowersOfItsStore(t *testing.T) {
	for name, store := range layers(t, plain{memstore.New(nil)}) {
		t.Run(name, func(t *testing.T) {
			l := newLimiter(t, store, nil, sash.PerHour(10))
			_, concurrency := sash.NewConcurrency(store, nil, 5, time.Minute)
			_, block := sash.New(store, &sash.Options{Block: sash.Block{For: time.Minute}}, sash.PerHour(10))
			errs := map[string]error{"NewConcurrency": concurrency, "New with a Block": block, "Reset": l.Reset(t.Context(), "k")}
			for _, call := range but("AllowN", "WaitN", "AllowAny") {
				errs[call.name] = call.make(t.Context(), l, "k", 1)
			}
			for call, err := range errs {
				if !errors.Is(err, sash.ErrUnsupported) {
					t.Errorf("%s: %v, want ErrUnsupported", call, err)
				}
			}
			if res, err := l.Peek(t.Context(), "k"); err != nil || res.Remaining != 10 {
				t.Errorf("%d of 10 are left: %v", res.Remaining, err)
			}
		})
	}
}

func TestADecoratorPassesOnThePowersOfItsStore(t *testing.T) {
	for name, store := range layers(t, memstore.New(nil)) {
		t.Run(name, func(t *testing.T) {
			l := newLimiter(t, store, nil, sash.PerHour(10))
			for _, call := range calls {
				if err := call.make(t.Context(), l, name+call.name, 1); err != nil {
					t.Errorf("%s: %v", call.name, err)
				}
			}
			r := reserve(t, l, name, 4)
			if err := r.Settle(t.Context(), 3); err != nil || remaining(t, l, name) != 7 {
				t.Errorf("settled: %v, %d of 10 are left", err, remaining(t, l, name))
			}
			if err := l.Reset(t.Context(), name); err != nil || remaining(t, l, name) != 10 {
				t.Errorf("reset: %v, %d of 10 are left", err, remaining(t, l, name))
			}
		})
	}
}

func TestBlocksThatCannotBe(t *testing.T) {
	for _, b := range []sash.Block{
		{Refusals: 3}, {Window: time.Second}, {Refusals: -1, For: time.Minute}, {Refusals: 101, For: time.Minute},
		{For: -1}, {For: time.Nanosecond}, {For: 31 * 24 * time.Hour}, {For: time.Minute, Window: -1},
		{For: time.Minute, Window: 25 * time.Hour}, {For: time.Minute, Window: time.Microsecond + 1},
	} {
		if l, err := sash.New(memstore.New(nil), &sash.Options{Block: b}, sash.PerMinute(1)); !errors.Is(err, sash.ErrInvalidLimit) {
			t.Errorf("%+v: %v, %v", b, l, err)
		}
	}
	l := newLimiter(t, memstore.New(nil), &sash.Options{Block: sash.Block{For: time.Hour}}, sash.PerMinute(1))
	if got := l.Policy().Block; got != (driver.Block{Refusals: 5, Window: 60e6, Length: 3600e6}) {
		t.Errorf("the default block is %+v", got)
	}
}

// Decorators that answer or decide for the store keep blocks what they are: each refusal counts, and no sum of calls.
func TestABlockBehindDecorators(t *testing.T) {
	for name, store := range layers(t, memstore.New(nil)) {
		t.Run(name, func(t *testing.T) {
			l := newLimiter(t, store, &sash.Options{Block: sash.Block{Refusals: 10, For: time.Hour}}, sash.PerHour(3))
			results := make(chan sash.Result)
			for range 30 {
				go func() {
					res, err := l.Allow(t.Context(), name)
					if err != nil {
						t.Error(err)
					}
					results <- res
				}()
			}
			admitted, blocked := 0, 0
			for range 30 {
				res := <-results
				if res.Allowed {
					admitted++
				}
				if res.Blocked {
					blocked++
				}
			}
			if admitted != 3 || blocked != 30-3-9 {
				t.Errorf("of 30 calls %d were admitted and %d were blocked, want 3 and 18", admitted, blocked)
			}
		})
	}
}
