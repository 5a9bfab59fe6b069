package lease_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
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
