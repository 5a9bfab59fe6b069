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
