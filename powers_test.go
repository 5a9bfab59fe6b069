package sash_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/lease"
	"example.com/sash/memstore"
	"example.com/sash/redisstore"
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

func TestConstructorsPanicWithoutAStore(t *testing.T) {
	for name, construct := range map[string]func(){
		"sash: New ":            func() { _, _ = sash.New(nil, nil, sash.PerMinute(1)) },
		"sash: NewConcurrency ": func() { _, _ = sash.NewConcurrency(nil, nil, 1, time.Minute) },
		"coalesce: New ":        func() { stack.GroupCommit(nil) },
		"denials: New ":         func() { stack.DenialCache(nil) },
		"failover: New ":        func() { _, _ = failover.New(nil, nil) },
		"lease: New ":           func() { _, _ = lease.New(nil, time.Second) },
		"redisstore: New ":      func() { redisstore.New(nil, nil) },
	} {
		func() {
			defer func() {
				if p, ok := recover().(string); !ok || !strings.HasPrefix(p, name) || !strings.Contains(p, "needs a ") {
					t.Errorf("%sdid not say what it needs: %v", name, p)
				}
			}()
			construct()
		}()
	}
}
