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
	"example.com/sash/memstore"
)

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
			if err := slot.Release(t.Context()); err != nil {
				t.Error(err)
			}
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
		if _, err := c.Wait(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
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
		if _, err := c.Wait(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != 200*time.Millisecond {
			t.Errorf("it waited %v, which is not one call from the refusal on", took)
		}
	})
}
