package lease

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/window"
	"example.com/sash/memstore"
)

// A strait is a home that is 100 ms away.
type strait struct{ *memstore.Store }

func (s strait) Do(ctx context.Context, b *driver.Batch) error {
	if b.Ops[0].Kind == driver.Charge {
		time.Sleep(100 * time.Millisecond)
	}
	return s.Store.Do(ctx, b)
}

// A process that goes on no further errand gives it up: another process of the region goes on it at once.
func TestAProcessOfManyErrandsGivesOneUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		region := memstore.New(nil)
		store, err := Shared(strait{memstore.New(nil)}, region, time.Second, nil)
		if err != nil {
			t.Fatal(err)
		}
		store.work.most = 1
		l, err := sash.New(store, nil, sash.PerHour(10_000))
		if err != nil {
			t.Fatal(err)
		}
		allow := func(key string) {
			if res, err := l.Allow(t.Context(), key); err != nil || !res.Allowed {
				t.Errorf("%+v, %v", res, err)
			}
		}
		allow("a")
		allow("b")
		go allow("a") // goes on an errand
		synctest.Wait()
		allow("b") // would go on one
		held, err := region.Spend(t.Context(), window.Spending{
			Key: string(identify(&driver.Request{Key: "b", Policy: l.Policy()})), Cost: 1, Longest: 1e6, Way: 100_000,
		})
		if err != nil || held.Errand == 0 {
			t.Errorf("another process gets %+v, %v; want the errand", held, err)
		}
		time.Sleep(5 * time.Second)
	})
}
