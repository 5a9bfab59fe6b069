package coalesce_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/drivertest"
	"example.com/sash/internal/judge"
	"example.com/sash/memstore"
	"example.com/sash/stack/internal/coalesce"
)

func TestBookingsThatComeTogetherAreOneRoundTripInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFar()
		store, limit := coalesce.New(inner), sash.Every(10, time.Second)
		if store.Powers()&driver.CanBook == 0 {
			t.Fatal("it does not book over a store that does")
		}
		const callers = 67 // a batch is short work for the store: 64 bookings at most
		var answers [callers]driver.Answer
		var wg sync.WaitGroup
		start := time.Now()
		for i := range callers {
			wg.Go(func() {
				var err error
				if answers[i], err = driver.Decide(t.Context(), store, booking(policy(t, limit), 1+int64(i%3))); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait() // so that they come one after the other
		}
		wg.Wait()
		if got := inner.each; !slices.Equal(got, []int{1, 64, callers - 65}) {
			t.Errorf("round trips for %v bookings; one for the first caller and two for the others are enough", got)
		}
		if took := time.Since(start); took != 3*inner.trip {
			t.Errorf("took %v; three round trips are %v", took, 3*inner.trip)
		}
		var admitted []judge.Call
		for i, a := range answers {
			if i > 0 && a.At < answers[i-1].At {
				t.Errorf("caller %d starts at %d, before caller %d at %d", i, a.At, i-1, answers[i-1].At)
			}
			admitted = append(admitted, judge.Call{At: time.UnixMicro(a.At), Cost: 1 + int64(i%3)})
		}
		if err := judge.CheckHistory([]sash.Limit{limit}, admitted); err != nil {
			t.Error(err)
		}
		if last := answers[callers-1]; last.Delay < (12 * time.Second).Microseconds() {
			t.Errorf("the last of 133 units at 10 per second starts after %d µs", last.Delay)
		}
	})
}

// Bookings and plain calls of a key wait for nothing of each other.
func TestPlainCallsDoNotWaitForBookings(t *testing.T) {
	for _, within := range []int64{0, driver.MaxAhead} {
		synctest.Test(t, func(t *testing.T) {
			inner := newFar()
			slow := drivertest.Over(inner, func(ctx context.Context, b *driver.Batch) error {
				if b.Ops[0].Within != within { // an hour longer for what the call does not wait for
					time.Sleep(time.Hour)
				}
				return inner.Do(ctx, b)
			})
			store, p := coalesce.New(slow), policy(t, sash.Every(10, time.Second))
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() {
					_, _ = driver.Decide(t.Context(), store, driver.Request{Key: "k", Cost: 1, Policy: p, Within: driver.MaxAhead - within})
				})
			}
			synctest.Wait()
			start := time.Now()
			if _, err := driver.Decide(t.Context(), store, driver.Request{Key: "k", Cost: 1, Policy: p, Within: within}); err != nil {
				t.Error(err)
			}
			if took := time.Since(start); took != inner.trip {
				t.Errorf("a call within %d took %v; a round trip is %v", within, took, inner.trip)
			}
			wg.Wait()
		})
	}
}

func TestAStoreWithABugLeavesNoBookingWaiting(t *testing.T) {
	for _, panics := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			inner := newFar()
			mute := drivertest.Over(inner, func(ctx context.Context, b *driver.Batch) error {
				err := inner.Do(ctx, b)
				if panics {
					panic("a bug")
				}
				for i := range b.Ops {
					b.Ops[i].Answer = driver.Answer{}
				}
				return err
			})
			store, p := coalesce.New(mute), policy(t, sash.PerMinute(10))
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					if _, err := driver.Decide(t.Context(), store, booking(p, 1)); err == nil {
						t.Error("no error")
					}
				})
			}
			wg.Wait()
		})
	}
}

// What cannot decide many requests in one round trip gets each of them by itself.
func TestBookingsOverAStoreThatIsNoBatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFar()
		one := drivertest.Over(inner, nil)
		one.Without = driver.CanEach
		store, p := coalesce.New(one), policy(t, sash.PerMinute(10))
		start := time.Now()
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				if _, err := driver.Decide(t.Context(), store, booking(p, 1)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if took := time.Since(start); took != inner.trip {
			t.Errorf("took %v; each alone is %v", took, inner.trip)
		}
	})
	if coalesce.New(drivertest.Plain(memstore.New(nil))).Powers()&driver.CanBook != 0 {
		t.Error("it books over a store that does not")
	}
}
