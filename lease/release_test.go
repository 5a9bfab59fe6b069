package lease_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/drivertest"
	"example.com/sash/internal/window"
	"example.com/sash/lease"
	"example.com/sash/memstore"
)

// A process that ends waits for its fetches and gives back what they bring: nothing of it stays charged.
func TestReleaseWaitsForFetches(t *testing.T) {
	for _, patient := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			home := newFar(trip / 2)
			ls, store := newRegion(t, home, 1, 3*time.Second, time.Hour, sash.PerHour(10_000))
			for _, patience := range []time.Duration{2 * trip, trip * 3 / 4} { // alone, and then on a fetch, which goes on
				ctx, leave := context.WithCancel(t.Context())
				time.AfterFunc(patience, leave)
				_, _ = ls[0].Allow(ctx, "k")
			}
			ctx, end := context.WithTimeout(t.Context(), trip/8)
			defer end()
			if patient {
				ctx = t.Context()
			}
			err := store.Release(ctx)
			if !patient {
				if err == nil || !strings.Contains(err.Error(), "under way") {
					t.Errorf("fetches are under way, and Release returns %v", err)
				}
			} else if err != nil {
				t.Error(err)
			}
			if charged := charges(t, home.Store, 10_000); patient && charged > 2 {
				t.Errorf("%d units stay charged for 2 calls", charged)
			}
			time.Sleep(10 * time.Second)
		})
	}
}

// charges returns how many units of the key k are charged at home, under an hour and the leases of three seconds.
func charges(t *testing.T, home *memstore.Store, most int64) int64 {
	t.Helper()
	res := lease.Must(newLimiter(t, home, nil, sash.Every(most, time.Hour+3*time.Second)).Peek(t.Context(), "k"))(t)
	return most - res.Remaining
}

// Release says why a lease could not be given back: a home that fails, or that settles nothing.
func TestReleaseSaysWhy(t *testing.T) {
	gone, memory := errors.New("the home is gone"), memstore.New(nil)
	for why, home := range map[error]driver.Store{
		gone: drivertest.Over(memory, func(ctx context.Context, b *driver.Batch) error {
			if b.Ops[0].Kind == driver.Settle {
				return gone
			}
			return memory.Do(ctx, b)
		}),
		driver.ErrUnsupported: drivertest.Plain(memstore.New(nil)),
	} {
		synctest.Test(t, func(t *testing.T) {
			store := newStore(t, home)
			l := newLimiter(t, store, nil, sash.PerMinute(60_000))
			admit(t, l, 20)
			if err := store.Release(t.Context()); !errors.Is(err, why) || !strings.Contains(err.Error(), "1 leases") {
				t.Errorf("the error is %v, want one that wraps %q", err, why)
			}
		})
	}
}

// A holder that panics fails calls, and not the process: fetches and returns run in the background.
func TestAHolderThatPanics(t *testing.T) {
	for _, method := range []string{"Spend", "Bring", "Return", "Forget"} {
		synctest.Test(t, func(t *testing.T) {
			home, holder := newFar(time.Millisecond), &trapped{Store: memstore.New(nil)}
			store := shared(t, home, holder, time.Second, nil)
			l := newLimiter(t, store, nil, sash.PerMinute(60_000))
			admit(t, l, 20)
			holder.method.Store(method)
			var failed error
			for range 5000 {
				if _, err := l.Allow(t.Context(), "k"); err != nil {
					failed = err
				}
				time.Sleep(time.Millisecond)
			}
			if err := drivertest.Of(store).Forget(t.Context(), "k", l.Policy()); err != nil {
				failed = err
			}
			if fails := method == "Spend" || method == "Forget"; fails != (failed != nil && strings.Contains(failed.Error(), "panic")) {
				t.Errorf("%s panics, and calls end with %v", method, failed)
			}
			time.Sleep(10 * time.Second)
		})
	}
}

// A trapped holder panics in one of its methods.
type trapped struct {
	*memstore.Store
	method atomic.Value // of string
}

func (p *trapped) at(method string) {
	if p.method.Load() == method {
		panic("a bug of the holder")
	}
}

func (p *trapped) Spend(ctx context.Context, s window.Spending) (window.Held, error) {
	p.at("Spend")
	return p.Store.Spend(ctx, s)
}

func (p *trapped) Bring(ctx context.Context, e window.Fetch) (bool, error) {
	p.at("Bring")
	return p.Store.Bring(ctx, e)
}

func (p *trapped) Return(ctx context.Context, key string, began, keep int64) (int64, error) {
	p.at("Return")
	return p.Store.Return(ctx, key, began, keep)
}

func (p *trapped) Forget(ctx context.Context, key string) error {
	p.at("Forget")
	return p.Store.Forget(ctx, key)
}

// A process that shuts down has a few seconds, and many leases of a home that is far away.
func TestReleaseGivesManyLeasesBackInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		home := newFar(75 * time.Millisecond)
		store := shared(t, home, memstore.New(nil), 3*time.Second, nil)
		l := newLimiter(t, store, nil, sash.PerMinute(100_000))
		var wg sync.WaitGroup
		for i := range 200 {
			wg.Go(func() {
				for range 3 {
					if _, err := l.Allow(t.Context(), fmt.Sprint(i)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		began := time.Now()
		if err := store.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %v", took)
		}
		look := newLimiter(t, home.Store, nil, sash.PerMinute(100_000))
		for i := range 200 {
			if res, err := look.Peek(t.Context(), fmt.Sprint(i)); err != nil || res.Remaining != 100_000-3 {
				t.Fatalf("%+v, %v", res, err)
			}
		}
		time.Sleep(time.Minute)
	})
}

func TestARefusalIsNotFirmWhileALeaseMayGiveBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFar(hop)
		here, there := newLimiter(t, newStore(t, inner), nil, sash.PerMinute(1000)), newStore(t, inner)
		for source := driver.FromStore; source != driver.FromLease; {
			source = admitted(t, here, "k").Source
		}
		req := driver.Request{Key: "k", Cost: 1000, Policy: here.Policy()}
		if answer, err := driver.Decide(t.Context(), there, req); err != nil || answer.Allowed() || answer.Firm {
			t.Errorf("%+v, %v", answer, err)
		}
	})
}

func TestAStoreThatPanicsLeavesNoCallerWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, panics := newFar(hop), atomic.Bool{}
		l := newLimiter(t, newStore(t, drivertest.Over(inner, func(ctx context.Context, b *driver.Batch) error {
			if panics.Load() && b.Ops[0].Cost > 1 { // for blocks
				panic("a bug")
			}
			return inner.Do(ctx, b)
		})), nil, sash.PerMinute(1000))
		admit(t, l, 300)
		time.Sleep(longest)
		panics.Store(true)
		admitted(t, l, "k")
	})
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
		time.Sleep(time.Second) // fetches end
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
