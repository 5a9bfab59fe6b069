package sash_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/memstore"
)

// extend extends a slot, and fails unless it is held.
func extend(t *testing.T, slot *sash.Slot, held bool) {
	t.Helper()
	if extended, err := slot.Extend(t.Context()); err != nil || extended != held {
		t.Errorf("extended %v, %v; held %v", extended, err, held)
	}
}

func TestASlotIsExtended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConcurrency(t, memstore.New(nil), 1, 10*time.Second)
		slot := start(t, c, "k")
		began := time.Now()
		for range 3 {
			time.Sleep(9 * time.Second)
			extend(t, slot, true)
		}
		go func() { // a waiter does not get the slot in between
			time.Sleep(9 * time.Second)
			extend(t, slot, true)
		}()
		other, err := c.Wait(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < 46*time.Second || took > 46*time.Second+time.Millisecond {
			t.Errorf("the slot was free after %v; it was extended for the last time after 36s, for 10s", took)
		}
		extend(t, slot, false)
		if err := slot.Release(t.Context()); err != nil || start(t, c, "k").Allowed() {
			t.Error("a slot that was gone freed that of another")
		}
		extend(t, other, true)
		if err := other.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		extend(t, other, false)
		if next := start(t, c, "k"); !next.Allowed() {
			t.Error("a slot that was extended was not released")
		}
		extend(t, start(t, c, "k"), false) // a refusal
	})
}

// Holders that extend and release at random, and others that want their slots: never more than n hold one.
func TestHoldersThatExtendNeverExceedN(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, hold = 3, time.Second
		c := newConcurrency(t, memstore.New(nil), n, hold)
		var g gauge
		var group sync.WaitGroup
		for i := range 30 {
			group.Go(func() {
				for round := range 20 {
					slot, err := c.Wait(t.Context(), "k")
					if err != nil {
						t.Error(err)
						return
					}
					g.enter()
					for range (i + round) % 5 {
						time.Sleep(time.Duration(500+37*i%400) * time.Millisecond)
						extend(t, slot, true)
					}
					g.leave()
					_ = slot.Release(t.Context())
				}
			})
		}
		group.Wait()
		if g.most.Load() != n || g.total.Load() != 600 {
			t.Errorf("%d of %d held slots, %d in all", g.most.Load(), n, g.total.Load())
		}
	})
}

func TestASlotThatIsReleasedWhileItIsExtendedIsFree(t *testing.T) {
	store := &slowToExtend{memstore.New(nil), make(chan struct{}), make(chan struct{})}
	c := newConcurrency(t, store, 1, time.Hour)
	slot := start(t, c, "k")
	go func() { _, _ = slot.Extend(t.Context()) }()
	<-store.extended
	released := make(chan struct{})
	go func() {
		defer close(released)
		_ = slot.Release(t.Context())
	}()
	select {
	case <-released:
	case <-time.After(10 * time.Millisecond): // it waits for the new instant
	}
	close(store.reply)
	<-released
	if !start(t, c, "k").Allowed() {
		t.Error("the slot is still taken")
	}
}

// slowToExtend extends at once, and replies when the test lets it.
type slowToExtend struct {
	*memstore.Store
	extended, reply chan struct{}
}

func (s *slowToExtend) Extend(ctx context.Context, set driver.Settlement) (int64, error) {
	at, err := s.Store.Extend(ctx, set)
	close(s.extended)
	<-s.reply
	return at, err
}

func TestAStoreThatCannotExtend(t *testing.T) {
	c := newConcurrency(t, &settlingStore{Store: memstore.New(nil)}, 1, time.Hour)
	if _, err := start(t, c, "k").Extend(t.Context()); !errors.Is(err, sash.ErrUnsupported) {
		t.Errorf("the error is %v", err)
	}
}

func TestSlotsAreSeenAndReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConcurrency(t, memstore.New(nil), 2, time.Hour)
		first := start(t, c, "k")
		if res, err := c.Peek(t.Context(), "k"); err != nil || res.Remaining != 1 {
			t.Errorf("%d slots are free, want 1 (%v)", res.Remaining, err)
		}
		start(t, c, "k")
		time.Sleep(time.Minute)
		began := time.Now()
		time.AfterFunc(time.Second/2, func() { _ = c.Reset(t.Context(), "k") })
		if _, err := c.Wait(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != time.Second/2 {
			t.Errorf("the waiter got a slot %v after it came, and the reset was after half a second", took)
		}
		extend(t, first, false)
		_ = first.Release(t.Context())
		if res, err := c.Peek(t.Context(), "k"); err != nil || res.Remaining != 1 {
			t.Errorf("%d slots are free, want 1 (%v)", res.Remaining, err)
		}
	})
}
