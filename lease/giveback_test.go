package lease_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/memstore"
)

func TestWhatALeaseLeavesGoesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFar(hop)
		store := newStore(t, inner)
		l := newLimiter(t, store, nil, sash.PerMinute(10_000))
		look := newLimiter(t, inner, nil, sash.PerMinute(10_000))
		left := func() int64 {
			res, err := look.Peek(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			return res.Remaining
		}
		spend := func() (n int64) {
			for range 500 {
				res, err := l.Allow(t.Context(), "k")
				if err != nil {
					t.Fatal(err)
				}
				if res.Allowed {
					n++
				}
			}
			return n
		}
		spent := spend()
		if left() == 10_000-spent {
			t.Fatal("nothing was leased")
		}
		time.Sleep(2 * longest)
		if got := left(); got != 10_000-spent {
			t.Errorf("%d were spent, and %d are left after the leases have ended", spent, got)
		}
		spent += spend()
		if err := store.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := left(); got != 10_000-spent {
			t.Errorf("%d were spent, and %d are left after a release", spent, got)
		}
	}) // the bubble fails when a goroutine is left
}

func TestARefusalIsNotFirmWhileALeaseMayGiveBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFar(hop)
		here, there := newLimiter(t, newStore(t, inner), nil, sash.PerMinute(1000)), newStore(t, inner)
		policy, err := sash.NewPolicy(nil, sash.PerMinute(1000))
		if err != nil {
			t.Fatal(err)
		}
		for {
			res, err := here.Allow(t.Context(), "k")
			if err != nil || !res.Allowed {
				t.Fatalf("%+v, %v", res, err)
			}
			if res.Source == driver.FromLease {
				break
			}
		}
		if answer, err := there.Decide(t.Context(), driver.Request{Key: "k", Cost: 1000, Policy: policy}); err != nil || answer.Allowed() || answer.Firm {
			t.Errorf("%+v, %v", answer, err)
		}
	})
}

func TestAStoreThatPanicsLeavesNoCallerWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &panicking{far: newFar(hop)}
		l := newLimiter(t, newStore(t, inner), nil, sash.PerMinute(1000))
		admit(t, l, 300)
		time.Sleep(longest)
		inner.panics.Store(true) // for blocks
		if res, err := l.Allow(t.Context(), "k"); err != nil || !res.Allowed {
			t.Errorf("%+v, %v", res, err)
		}
	})
}

type panicking struct {
	*far
	panics atomic.Bool
}

func (p *panicking) Decide(ctx context.Context, req driver.Request) (driver.Answer, error) {
	if p.panics.Load() && req.Cost > 1 {
		panic("a bug")
	}
	return p.far.Decide(ctx, req)
}

// Regions near the home and far away have the same demand, more than there is in all. None is left with less than three
// quarters of an equal share.
func TestARegionNearTheHomeGetsNoLessThanOneFarAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		home := memstore.New(nil)
		const span, window, units = time.Second, 10 * time.Second, 5000
		ways := []time.Duration{time.Millisecond, 40 * time.Millisecond, 75 * time.Millisecond}
		admitted := make([]atomic.Int64, len(ways))
		var group sync.WaitGroup
		for i, way := range ways {
			store := shared(t, &far{Store: home, way: way}, memstore.New(nil), span, nil)
			l := newLimiter(t, store, nil, sash.Every(units, window))
			began := time.Now()
			for range 8 {
				group.Go(func() {
					for time.Since(began) < 3*window {
						res, err := l.Allow(t.Context(), "k")
						if err != nil {
							t.Error(err)
						}
						if res.Allowed && time.Since(began) > window {
							admitted[i].Add(1)
						}
						if time.Since(began) > window {
							time.Sleep(10 * time.Millisecond)
						} else { // the limit is used up at the end of the window, and evenly over it
							time.Sleep(48 * time.Millisecond)
						}
					}
				})
			}
		}
		group.Wait()
		time.Sleep(time.Second) // errands end
		all := int64(0)
		for i := range admitted {
			all += admitted[i].Load()
		}
		for i := range admitted {
			n := admitted[i].Load()
			if 4*int64(len(ways))*n < 3*all {
				t.Errorf("the region %v away was admitted %d of %d calls", 2*ways[i], n, all)
			}
		}
	})
}
