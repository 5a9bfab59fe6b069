package lease_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/lease"
	"example.com/sash/memstore"
)

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
			store, err := lease.Shared(&far{Store: home, out: way, back: way}, memstore.New(nil), span, nil)
			if err != nil {
				t.Fatal(err)
			}
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
