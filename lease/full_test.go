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

// A process that starts no further fetch gives it up: another process of the region fetches at once.
func TestAProcessOfManyFetchesGivesOneUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		region := memstore.New(nil)
		store := Must(Shared(strait{memstore.New(nil)}, region, time.Second, nil))(t)
		store.work.most = 1
		l := Must(sash.New(store, nil, sash.PerHour(10_000)))(t)
		allow := func(key string) {
			if res, err := l.Allow(t.Context(), key); err != nil || !res.Allowed {
				t.Errorf("%+v, %v", res, err)
			}
		}
		allow("a")
		allow("b")
		go allow("a") // fetches
		synctest.Wait()
		allow("b") // would go on one
		held, err := region.Spend(t.Context(), window.Spending{
			Key: string(identify(&driver.Request{Key: "b", Policy: l.Policy()})), Cost: 1, Longest: 1e6, Way: 100_000,
		})
		if err != nil || held.Fetch == 0 {
			t.Errorf("another process gets %+v, %v; want the fetch", held, err)
		}
		time.Sleep(5 * time.Second)
	})
}

// Must returns a function that returns the value, or fails the test at once after an error: Must(f())(t).
func Must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}
