package lease_test

import (
	"errors"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/lease"
	"example.com/sash/memstore"
)

// A home that is silent is asked by one call after the other, and the others fail at once: also those that no lease can
// serve, under small limits, peeks, and where leases are too short for the way.
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
			home := newOcean(trip / 2)
			store, err := lease.Shared(contextual{home, time.Second}, memstore.New(nil), c.longest, nil)
			if err != nil {
				t.Fatal(err)
			}
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
