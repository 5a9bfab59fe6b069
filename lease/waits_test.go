package lease_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/lease"
)

// Many cheap calls use blocks up as they come. A dear one does not wait for one block after the other.
func TestACallWaitsForAFewBlocksOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		far := newFar()
		far.out, far.back = time.Millisecond, time.Millisecond
		const trip = 2 * time.Millisecond
		store, err := lease.New(far, 10*time.Millisecond) // so short that blocks are small
		if err != nil {
			t.Fatal(err)
		}
		l := newLimiter(t, store, nil, sash.PerSecond(1000))
		random := rand.New(rand.NewPCG(1, 1))
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 64 {
			pause := time.Duration(random.Int64N(int64(200 * time.Microsecond)))
			wg.Go(func() {
				for ctx.Err() == nil {
					_, _ = l.Allow(ctx, "k")
					time.Sleep(pause)
				}
			})
		}
		for i := range 500 {
			time.Sleep(7*time.Millisecond + time.Microsecond)
			start := time.Now()
			if _, err := l.AllowN(t.Context(), "k", 2+int64(i%8)); err != nil {
				t.Error(err)
			}
			if took := time.Since(start); took > 4*trip {
				t.Errorf("it took %v; three blocks and the call alone are %v", took, 4*trip)
				break
			}
		}
		stop()
		wg.Wait()
		time.Sleep(time.Second) // what is left goes back
	})
}

// A way that was too long for leases is measured by the calls that the home decides meanwhile: connecting takes longer
// than what follows.
func TestLeasesBeginWhenTheWayIsShortEnoughAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFar()
		inner.out, inner.back = 45*time.Millisecond, 45*time.Millisecond
		l := newLimiter(t, newStore(t, inner), nil, sash.PerMinute(100_000))
		fromLease := 0
		for i := range 2000 {
			if i == 5 {
				inner.out, inner.back = time.Millisecond, time.Millisecond
			}
			res, err := l.Allow(t.Context(), "k")
			if err != nil || !res.Allowed {
				t.Fatalf("%+v, %v", res, err)
			}
			if i >= 1000 && res.Source == driver.FromLease {
				fromLease++
			}
			time.Sleep(time.Millisecond)
		}
		if fromLease < 900 {
			t.Errorf("%d of 1000 calls were decided beside the home, long after its way became short", fromLease)
		}
	})
}

// A call that is not answered says why, also if the home answers at once that it cannot.
func TestACallSaysWhyTheHomeDoesNotLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reason := errors.New("READONLY You can't write against a read only replica")
		l := newLimiter(t, newStore(t, broken{newFar(), reason}), nil, sash.PerMinute(10_000))
		for range 20 {
			if _, err := l.Allow(t.Context(), "k"); !errors.Is(err, reason) {
				t.Errorf("%v", err)
			}
		}
	})
}

// A broken store answers every call with an error.
type broken struct {
	*far
	err error
}

func (b broken) Decide(context.Context, driver.Request) (driver.Answer, error) {
	return driver.Answer{}, b.err
}
