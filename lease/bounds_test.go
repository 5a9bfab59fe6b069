package lease_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/lease"
	"example.com/sash/memstore"
)

// A process that shuts down has a few seconds, and many leases of a home that is far away.
func TestReleaseGivesManyLeasesBackInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		home := newOcean(75 * time.Millisecond)
		store, err := lease.Shared(home, memstore.New(nil), 3*time.Second, nil)
		if err != nil {
			t.Fatal(err)
		}
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
