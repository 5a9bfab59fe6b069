package sash_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/memstore"
)

func newConcurrency(t *testing.T, store driver.Store, n int64, maxHold time.Duration) *sash.Concurrency {
	t.Helper()
	c, err := sash.NewConcurrency(store, nil, n, maxHold)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func start(t *testing.T, c *sash.Concurrency, key string) *sash.Slot {
	t.Helper()
	slot, err := c.Start(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return slot
}

// A gauge knows how many are inside, and the most that ever were.
type gauge struct{ inside, most, total atomic.Int64 }

func (g *gauge) enter() {
	g.total.Add(1)
	n := g.inside.Add(1)
	most := g.most.Load()
	for n > most && !g.most.CompareAndSwap(most, n) {
		most = g.most.Load()
	}
}

func (g *gauge) leave() { g.inside.Add(-1) }

func TestASlotIsTakenSoonAfterItComesFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &settlingStore{Store: memstore.New(nil)}
		c := newConcurrency(t, store, 1, time.Hour)
		slot := start(t, c, "k")
		const held = 10 * time.Minute
		time.AfterFunc(held, func() { _ = slot.Release(t.Context()) })
		began := time.Now()
		if _, err := c.Wait(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		if late := time.Since(began) - held; late < 0 || late > time.Second {
			t.Errorf("the slot was taken %v after it came free", late)
		}
		if n := store.calls.Load(); n < 600 || n > 1250 {
			t.Errorf("the store was asked %d times in 10 minutes", n)
		}
	})
}

func TestAHolderThatDiesFreesItsSlotAfterTheHoldTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConcurrency(t, memstore.New(nil), 1, 10*time.Second)
		dead := start(t, c, "k")
		began := time.Now()
		slot, err := c.Wait(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(began); waited < 10*time.Second || waited > 10*time.Second+time.Microsecond {
			t.Errorf("the slot was free after %v; the hold time is 10s", waited)
		}
		// It was not dead but slow: its slot is another's by now, and is not given back by it.
		if err := dead.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if start(t, c, "k").Allowed() {
			t.Error("the late holder gave back a slot that was not its own")
		}
		for range 2 {
			if err := slot.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if !start(t, c, "k").Allowed() || start(t, c, "k").Allowed() {
			t.Error("a slot that was given back twice is not one slot")
		}
	})
}

func TestWaitingEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConcurrency(t, memstore.New(nil), 1, time.Hour)
		start(t, c, "k")
		ctx, stop := context.WithTimeout(t.Context(), 7*time.Second)
		defer stop()
		began := time.Now()
		_, err := c.Wait(ctx, "k")
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, sash.ErrLimited) {
			t.Errorf("at the deadline: %v", err)
		}
		if want := "k is constrained to 1 call at once; none ended before the deadline"; err == nil || err.Error() != want {
			t.Errorf("the error is %q, want %q", err, want)
		}
		if took := time.Since(began); took != 7*time.Second {
			t.Errorf("it waited %v; a slot could have come free until the deadline", took)
		}

		ctx, stop = context.WithCancel(t.Context())
		time.AfterFunc(time.Second, stop)
		if _, err := c.Wait(ctx, "k"); !errors.Is(err, context.Canceled) || errors.Is(err, sash.ErrLimited) {
			t.Errorf("cancelled: %v", err)
		}
	})
}

func TestARefusalSaysAtOnce(t *testing.T) {
	clock := time.UnixMicro(1_800_000_000_000_000)
	c := newConcurrency(t, memstore.New(&memstore.Options{Now: func() time.Time { return clock }}), 5, 10*time.Minute)
	for range 5 {
		start(t, c, "x")
	}
	clock = clock.Add(30 * time.Second)
	err := c.Do(t.Context(), "x", func(context.Context) error { t.Error("it ran"); return nil })
	if want := "x is constrained to 5 calls at once; one ends within 9m30s"; err == nil || err.Error() != want {
		t.Errorf("the error is %q, want %q", err, want)
	}
	var limited *sash.LimitedError
	if !errors.As(err, &limited) || !limited.AtOnce || limited.Limit.Units != 5 || limited.Limit.Name != "5 at once" {
		t.Errorf("%+v", limited)
	}
}

func TestDoFreesTheSlotHoweverFEnds(t *testing.T) {
	c := newConcurrency(t, memstore.New(nil), 1, time.Hour)
	failed := errors.New("failed")
	if err := c.Do(t.Context(), "k", func(context.Context) error { return failed }); !errors.Is(err, failed) {
		t.Errorf("the error is %v", err)
	}
	func() {
		defer func() { _ = recover() }()
		_ = c.Do(t.Context(), "k", func(context.Context) error { panic("broken") })
	}()
	ctx, gone := context.WithCancel(t.Context())
	if err := c.Do(ctx, "k", func(context.Context) error { gone(); return nil }); err != nil {
		t.Error(err)
	}
	if !start(t, c, "k").Allowed() {
		t.Error("a slot was kept")
	}
}

func TestConcurrenciesThatCannotWork(t *testing.T) {
	settles := memstore.New(nil)
	for name, c := range map[string]struct {
		store driver.Store
		opts  sash.Options
		n     int64
		hold  time.Duration
		want  error
	}{
		"no slot":                          {settles, sash.Options{}, 0, time.Minute, sash.ErrInvalidLimit},
		"no hold time":                     {settles, sash.Options{}, 5, 0, sash.ErrInvalidLimit},
		"an algorithm that is not exact":   {settles, sash.Options{Algorithm: sash.FixedWindow}, 5, time.Minute, sash.ErrInvalidLimit},
		"a block":                          {settles, sash.Options{Block: sash.Block{For: time.Minute}}, 5, time.Minute, sash.ErrInvalidLimit},
		"a store that cannot settle":       {panicStore{}, sash.Options{}, 5, time.Minute, sash.ErrUnsupported},
		"refused calls that count as well": {settles, sash.Options{CountRefused: true}, 5, time.Minute, sash.ErrUnsupported},
	} {
		if _, err := sash.NewConcurrency(c.store, &c.opts, c.n, c.hold); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}
