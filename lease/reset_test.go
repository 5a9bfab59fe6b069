package lease_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
)

func TestAResetEndsTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFar()
		l := newLimiter(t, newStore(t, inner), nil, sash.PerMinute(1000))
		for range 300 {
			if _, err := l.Allow(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Reset(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		if res, err := l.Allow(t.Context(), "k"); err != nil || res.Source != driver.FromStore || res.Remaining != 999 {
			t.Errorf("right after a reset: %+v, %v", res, err)
		}
		if err := l.Reset(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if res, err := l.Peek(t.Context(), "k"); err != nil || res.Remaining != 1000 {
			t.Errorf("%d left of 1000 after a reset, %v", res.Remaining, err)
		}
	})
}

func TestABlockThatWasOnItsWayDuringAResetIsNotSpent(t *testing.T) {
	for name, decided := range map[string]bool{"charged before": true, "charged after": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := newFar()
				store := newStore(t, inner)
				l := newLimiter(t, store, nil, sash.PerMinute(1000))
				warm(t, l)
				time.Sleep(5 * time.Millisecond) // an errand may be under way
				if err := store.Release(t.Context()); err != nil {
					t.Fatal(err)
				}
				inner.out, inner.back = time.Millisecond, time.Millisecond
				var wg sync.WaitGroup
				wg.Go(func() { _, _ = l.Allow(t.Context(), "k") })
				time.Sleep(500 * time.Microsecond)
				if decided {
					time.Sleep(time.Millisecond)
				}
				if err := l.Reset(t.Context(), "k"); err != nil {
					t.Fatal(err)
				}
				wg.Wait()
				admitted := int64(0)
				for {
					res, err := l.Allow(t.Context(), "k")
					if err != nil {
						t.Fatal(err)
					}
					if !res.Allowed {
						break
					}
					admitted++
				}
				if admitted > 1000 {
					t.Errorf("%d of 1000 were admitted after a reset", admitted)
				}
			})
		})
	}
}

// slowToReset takes a while until it has reset.
type slowToReset struct{ *far }

func (s slowToReset) Reset(ctx context.Context, key string, policy *driver.Policy) error {
	time.Sleep(10 * time.Millisecond)
	return s.far.Reset(ctx, key, policy)
}

func TestALeaseThatBeganDuringAResetIsNotSpentAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, newStore(t, slowToReset{newFar()}), nil, sash.PerMinute(1000))
		warm(t, l)
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := l.Reset(t.Context(), "k"); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(time.Millisecond)
		for leased := false; !leased; {
			res, err := l.Allow(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			leased = res.Source == driver.FromLease
		}
		wg.Wait()
		if res, err := l.Allow(t.Context(), "k"); err != nil || res.Source == driver.FromLease {
			t.Errorf("%+v, %v", res, err)
		}
	})
}
