package lease_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
)

func TestWhatALeaseLeavesGoesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFar()
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
		inner := newFar()
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
		inner := &panicking{far: newFar()}
		l := newLimiter(t, newStore(t, inner), nil, sash.PerMinute(1000))
		warm(t, l)
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
