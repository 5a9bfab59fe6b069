package lease_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/drivertest"
	"example.com/sash/lease"
	"example.com/sash/memstore"
)

// A caller below the limit waits for a trip at first, and never again.
func TestASteadyCallerNeverWaitsForATripAgain(t *testing.T) {
	for _, processes := range []int{1, 4} {
		synctest.Test(t, func(t *testing.T) {
			home := newFar(trip / 2)
			region, _ := newRegion(t, home, processes, 3*time.Second, time.Hour, sash.PerMinute(60_000))
			waited := 0
			begin := time.Now()
			for i := range 40_000 {
				before := time.Now()
				admitted(t, region[i%processes], "k")
				if took := time.Since(before); took > 0 {
					waited++
					if time.Since(begin) > 3*trip+time.Second {
						t.Errorf("%v after the beginning a call took %v", time.Since(begin), took)
					}
				}
				time.Sleep(1250 * time.Microsecond) // 800 a second, of 1000
			}
			if n := home.calls.Load(); n > 5*40 {
				t.Errorf("%d calls of the home for 40,000 decisions", n)
			}
			t.Logf("%d waited, %d calls of the home", waited, home.calls.Load())
			time.Sleep(10 * time.Second)
		})
	}
}

// A home that is silent is asked by one call after the other, and the others fail at once: also those that no lease can
// serve, under small limits, peeks, and where leases are too short for the way. Of those few go home at once while it answers.
func TestASilentHomeIsAskedByOneCallAtATime(t *testing.T) {
	for name, c := range map[string]struct {
		longest time.Duration
		limit   sash.Limit
		peeks   bool
	}{
		"leases are too short": {longest: trip, limit: sash.PerHour(10_000)},
		"the limit is small":   {longest: time.Second, limit: sash.PerHour(10)},
		"peeks":                {longest: time.Second, limit: sash.PerHour(10_000), peeks: true},
	} {
		bubble(t, name, func(t *testing.T) {
			home := newFar(trip / 2)
			var now, most atomic.Int64 // calls under way
			store := shared(t, drivertest.Over(home, func(ctx context.Context, b *driver.Batch) error {
				most.Store(max(most.Load(), now.Add(1)))
				defer now.Add(-1)
				ctx, cancel := context.WithTimeout(ctx, time.Second) // as a client does
				defer cancel()
				return home.Do(ctx, b)
			}), memstore.New(nil), c.longest, nil)
			l := newLimiter(t, store, nil, c.limit)
			call := func() (err error) {
				if c.peeks {
					_, err = l.Peek(t.Context(), "k")
				} else {
					_, err = l.Allow(t.Context(), "k")
				}
				return err
			}
			for range 3 {
				if err := call(); err != nil {
					t.Fatal(err)
				}
			}
			for range 2000 * int(trip/c.longest) { // most of 400 a second wait in vain
				go func() { _ = call() }()
				time.Sleep(trip / 60)
			}
			time.Sleep(5 * time.Second)
			if n := most.Load(); n > 8+8 { // with fetches and settlements
				t.Errorf("%d calls go home at once", n)
			}
			home.cut.Store(true)
			home.calls.Store(0)
			for range 1000 {
				go func() {
					if err := call(); !errors.Is(err, sash.ErrUnavailable) {
						t.Errorf("a call gets %v", err)
					}
				}()
				time.Sleep(10 * time.Millisecond)
			}
			if n := home.calls.Load(); n > 150 { // those of the first second, and then one after each pause
				t.Errorf("%d of 1000 calls in 10 s ask a home that is silent", n)
			}
			home.cut.Store(false)
			time.Sleep(10 * time.Second)
			if err := call(); err != nil {
				t.Errorf("the home answers again, and a call gets %v", err)
			}
		})
	}
}

// newRegion returns limiters of so many processes that share leases, in a region whose clock is ahead by a while, and the
// store of the last one.
func newRegion(
	t testing.TB, home driver.Store, processes int, longest, ahead time.Duration, limits ...sash.Limit,
) (ls []*sash.Limiter, last *lease.Store) {
	t.Helper()
	holder := memstore.New(&memstore.Options{Now: func() time.Time { return time.Now().Add(ahead) }})
	for range processes {
		last = shared(t, home, holder, longest, nil)
		ls = append(ls, newLimiter(t, last, nil, limits...))
	}
	return ls, last
}
