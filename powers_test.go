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
			two := []sash.Subject{{Key: "k", Cost: 1}, {Key: "l", Cost: 1}}
			_, reserve := l.Reserve(t.Context(), "k", 1)
			_, _, reserveAll := l.ReserveAll(t.Context(), two...)
			_, _, reserveAny := l.ReserveAny(t.Context(), two...)
			_, book := l.Book(t.Context(), "k", 1, time.Minute)
			_, _, bookAll := l.BookAll(t.Context(), time.Minute, two...)
			_, _, bookAny := l.BookAny(t.Context(), time.Minute, two...)
			_, bookOnce := l.BookOnce(t.Context(), "id", "k", 1, time.Minute)
			_, once := l.AllowOnce(t.Context(), "id", "k", 1)
			_, all := l.AllowAll(t.Context(), two...)
			_, upTo := l.AllowUpTo(t.Context(), "k", 1)
			_, penalize := l.Penalize(t.Context(), "k", 1)
			_, reward := l.Reward(t.Context(), "k", 1)
			_, concurrency := sash.NewConcurrency(store, nil, 5, time.Minute)
			_, block := sash.New(store, &sash.Options{Block: sash.Block{For: time.Minute}}, sash.PerHour(10))
			for call, err := range map[string]error{
				"Reserve": reserve, "ReserveAll": reserveAll, "ReserveAny": reserveAny, "AllowOnce": once, "AllowAll": all,
				"Book": book, "BookAll": bookAll, "BookAny": bookAny, "BookOnce": bookOnce,
				"AllowUpTo": upTo, "Penalize": penalize, "Reward": reward,
				"NewConcurrency": concurrency, "New with a Block": block, "Reset": l.Reset(t.Context(), "k"),
			} {
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
			r, err := l.Reserve(t.Context(), name, 4)
			if err != nil || !r.Allowed() {
				t.Fatal(r, err)
			}
			if err := r.Settle(t.Context(), 3); err != nil {
				t.Error(err)
			}
			for range 3 {
				if res, err := l.AllowOnce(t.Context(), "id", name, 2); err != nil || !res.Allowed || res.Remaining != 5 {
					t.Errorf("%+v, %v; want 5 of 10 left", res, err)
				}
			}
			if err := l.Reset(t.Context(), name); err != nil {
				t.Error(err)
			}
			if res, err := l.Peek(t.Context(), name); err != nil || res.Remaining != 10 {
				t.Errorf("%d of 10 are left: %v", res.Remaining, err)
			}
			if res, err := l.AllowUpTo(t.Context(), name, 30); err != nil || res.Charged != 10 {
				t.Errorf("%d of 10 charged, %v", res.Charged, err)
			}
			if res, err := l.Penalize(t.Context(), name, 5); err != nil || res.Allowed {
				t.Errorf("15 of 10 are charged: %+v, %v", res, err)
			}
			if res, err := l.Reward(t.Context(), name, 20); err != nil || res.Charged != 15 || res.Remaining != 10 {
				t.Errorf("of 15 units %d were given back: %d of 10 remain, %v", res.Charged, res.Remaining, err)
			}
			two := []sash.Subject{{Key: name, Cost: 1}, {Key: name + " two", Cost: 1}}
			if res, err := l.AllowAll(t.Context(), two...); err != nil || !res.Allowed {
				t.Errorf("%+v, %v", res, err)
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
