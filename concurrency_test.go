package sash_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/drivertest"
	"example.com/sash/memstore"
)

func newConcurrency(t *testing.T, store driver.Store, n int64, maxHold time.Duration) *sash.Concurrency {
	t.Helper()
	return must(sash.NewConcurrency(store, nil, n, maxHold))(t)
}

func start(t *testing.T, c *sash.Concurrency, key string) *sash.Slot {
	t.Helper()
	return must(c.Start(t.Context(), key))(t)
}

func TestAHolderThatDiesFreesItsSlotAfterTheHoldTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConcurrency(t, memstore.New(nil), 1, 10*time.Second)
		dead := start(t, c, "k")
		began := time.Now()
		slot := must(c.Wait(t.Context(), "k"))(t)
		if waited := time.Since(began); waited < 10*time.Second || waited > 10*time.Second+time.Microsecond {
			t.Errorf("the slot was free after %v; the hold time is 10s", waited)
		}
		// It was not dead but slow: its slot is another's by now, and is not given back by it.
		check(t, dead.Release(t.Context()))
		if start(t, c, "k").Allowed() {
			t.Error("the late holder gave back a slot that was not its own")
		}
		for range 2 {
			check(t, slot.Release(t.Context()))
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
	report(t, c.Do(ctx, "k", func(context.Context) error { gone(); return nil }))
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
		other := must(c.Wait(t.Context(), "k"))(t)
		if took := time.Since(began); took < 46*time.Second || took > 46*time.Second+time.Millisecond {
			t.Errorf("the slot was free after %v; it was extended for the last time after 36s, for 10s", took)
		}
		extend(t, slot, false)
		extend(t, other, true)
		check(t, other.Release(t.Context()))
		extend(t, other, false)
		if next := start(t, c, "k"); !next.Allowed() {
			t.Error("a slot that was extended was not released")
		}
		extend(t, start(t, c, "k"), false) // a refusal
	})
}

func TestASlotThatIsReleasedWhileItIsExtendedIsFree(t *testing.T) {
	inner, extended, reply := memstore.New(nil), make(chan struct{}), make(chan struct{})
	store := drivertest.Over(inner, func(ctx context.Context, b *driver.Batch) error {
		err := inner.Do(ctx, b)
		if b.Ops[0].Kind == driver.Extend {
			close(extended)
			<-reply
		}
		return err
	})
	c := newConcurrency(t, store, 1, time.Hour)
	slot := start(t, c, "k")
	go func() { _, _ = slot.Extend(t.Context()) }()
	<-extended
	released := make(chan struct{})
	go func() {
		defer close(released)
		_ = slot.Release(t.Context())
	}()
	select {
	case <-released:
	case <-time.After(10 * time.Millisecond): // it waits for the new instant
	}
	close(reply)
	<-released
	if !start(t, c, "k").Allowed() {
		t.Error("the slot is still taken")
	}
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
		must(c.Wait(t.Context(), "k"))(t)
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

const task = 20 * time.Millisecond

// Callers of one process get slots in the order in which they came, as soon as one is released, and with few calls.
func TestASlotIsTakenWhenItIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counts := &settlingStore{Store: memstore.New(nil)}
		c := newConcurrency(t, counts, 5, time.Minute)
		began := time.Now()
		taken := waitInOrder(t, c, 100, task)
		took := time.Since(began)
		t.Logf("%.0f %% of what is possible, with %d calls", 100*float64(100/5*task)/float64(took), counts.calls.Load())
		if most := 100 / 5 * task * 10 / 9; took > most {
			t.Errorf("100 tasks took %v; 90 %% of what is possible is %v", took, most)
		}
		for i := 1; i < len(taken); i++ { // two of one instant can change places after they were admitted
			if a, b := taken[i-1], taken[i]; b.by < a.by && b.at != a.at {
				t.Errorf("slot %d was taken by %d, after %d", i, b.by, a.by)
			}
		}
		if n := counts.calls.Load(); n > 250 {
			t.Errorf("the store decided %d times for 100 admissions", n)
		}
	})
}

// When another process has released several slots, the first of a line finds them for all.
func TestALineTakesAllSlotsThatItFinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(nil)
		c, elsewhere := newConcurrency(t, store, 5, time.Hour), newConcurrency(t, store, 5, time.Hour)
		var held []*sash.Slot
		for range 5 {
			held = append(held, start(t, elsewhere, "k"))
		}
		time.Sleep(10 * time.Second)
		time.AfterFunc(time.Millisecond, func() {
			for _, slot := range held {
				_ = slot.Release(t.Context())
			}
		})
		taken := waitInOrder(t, c, 5, time.Minute)
		if apart := taken[4].at.Sub(taken[0].at); apart > 0 {
			t.Errorf("the last of five slots was taken %v after the first", apart)
		}
	})
}

// A take is who took a slot, of all that wait, and when.
type take struct {
	by int
	at time.Time
}

// waitInOrder lets n callers wait, one after the other, each of which holds its slot for a time. It returns them in the
// order of their admission. It needs a bubble of synctest.
func waitInOrder(t *testing.T, c *sash.Concurrency, n int, held time.Duration) (taken []take) {
	var mu sync.Mutex
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			slot, err := c.Wait(t.Context(), "k")
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			taken = append(taken, take{i, time.Now()})
			mu.Unlock()
			time.Sleep(held)
			report(t, slot.Release(t.Context()))
		})
		synctest.Wait()
	}
	group.Wait()
	return taken
}

func TestAWaiterThatLeavesIsSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConcurrency(t, memstore.New(nil), 1, time.Hour)
		held := start(t, c, "k")
		const waiters = 6
		var got []int
		var group sync.WaitGroup
		stops := make([]context.CancelFunc, waiters)
		for i := range waiters {
			var ctx context.Context
			ctx, stops[i] = context.WithCancel(t.Context())
			group.Go(func() {
				slot, err := c.Wait(ctx, "k")
				if err != nil {
					if !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
					return
				}
				got = append(got, i)
				_ = slot.Release(t.Context())
			})
			synctest.Wait()
		}
		time.Sleep(10 * time.Minute)
		stops[0]() // the first, who asks the store
		stops[3]() // one in the middle
		synctest.Wait()
		began := time.Now()
		_ = held.Release(t.Context())
		stops[1]() // the next, who has just been woken: it may be admitted, or leave
		group.Wait()
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("it took %v until all who stayed had a slot", took)
		}
		if want := []int{2, 4, 5}; !slices.Equal(got, want) && !slices.Equal(got, append([]int{1}, want...)) {
			t.Errorf("slots were taken by %v, want %v, perhaps after 1", got, want)
		}
		if !start(t, c, "k").Allowed() {
			t.Error("a slot was lost")
		}
	})
}

func TestAWaiterThatLeavesWhileTheStoreDecidesGivesItsSlotOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConcurrency(t, slow{memstore.New(nil)}, 1, time.Hour)
		ctx, stop := context.WithCancel(t.Context())
		go func() {
			if _, err := c.Wait(ctx, "k"); !errors.Is(err, context.Canceled) {
				t.Errorf("the first: %v", err)
			}
		}()
		synctest.Wait()
		time.AfterFunc(20*time.Millisecond, stop) // the store decides later
		began := time.Now()
		must(c.Wait(t.Context(), "k"))(t)
		if took := time.Since(began); took > time.Second {
			t.Errorf("the second waited %v", took)
		}
	})
}

// slow is a store that decides after 50 ms, also when its caller leaves, and replies as much later.
type slow struct{ *memstore.Store }

func (s slow) Do(ctx context.Context, b *driver.Batch) error {
	if b.Ops[0].Kind == driver.Charge {
		time.Sleep(50 * time.Millisecond)
		defer time.Sleep(50 * time.Millisecond)
	}
	return s.Store.Do(context.WithoutCancel(ctx), b)
}

func TestASlotThatIsReleasedWhileTheStoreRefusesIsFoundAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConcurrency(t, slow{memstore.New(nil)}, 64, time.Hour)
		var held []*sash.Slot
		for range 64 {
			held = append(held, start(t, c, "k"))
		}
		time.Sleep(10 * time.Second)
		go func() {
			time.Sleep(75 * time.Millisecond) // after the decision, before the reply
			_ = held[0].Release(t.Context())
		}()
		began := time.Now()
		must(c.Wait(t.Context(), "k"))(t)
		if took := time.Since(began); took != 200*time.Millisecond {
			t.Errorf("it waited %v, which is not one call from the refusal on", took)
		}
	})
}
