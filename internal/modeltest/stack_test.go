package modeltest

import (
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/internal/judge"
	"example.com/sash/internal/redistest"
	"example.com/sash/memstore"
	"example.com/sash/stack"
	"example.com/sash/storetest"
)

// The suite holds over the stack. The suite's clock is not that of denials, so no refusal is kept for long. Leases make
// sliding windows longer, and no others.
func TestTheSuiteOverTheStack(t *testing.T) {
	const longest = 100 * time.Millisecond
	notLeased := []sash.Algorithm{sash.SlidingCounter, sash.FixedWindow, sash.GCRA}
	server := redistest.Start(t)
	inMemory := func(*testing.T) (driver.Store, *judge.Clock) {
		clock := judge.NewClock(start)
		return memstore.New(&memstore.Options{Now: clock.Now}), clock
	}
	onRedis := func(t *testing.T) (driver.Store, *judge.Clock) {
		store, clock, scripts := virtual(t, server.Addr(), nil)
		if err := scripts.client.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		return store, clock
	}
	for _, c := range []struct {
		name       string
		open       func(*testing.T) (driver.Store, *judge.Clock)
		mode       failover.Mode
		lease      time.Duration
		algorithms []sash.Algorithm
	}{
		{"memstore, closed", inMemory, failover.Closed, 0, []sash.Algorithm{sash.SlidingLog, sash.SlidingBuckets}},
		{"memstore, local, leases", inMemory, failover.Local, longest, notLeased},
		{"redis, local", onRedis, failover.Local, 0, sash.Algorithms()},
		{"redis, closed, leases", onRedis, failover.Closed, longest, []sash.Algorithm{sash.GCRA}},
	} {
		t.Run(c.name, func(t *testing.T) {
			storetest.Run(t, func(t *testing.T) storetest.Harness {
				store, clock := c.open(t)
				stacked, err := stack.New(store, &stack.Options{
					Failover: failover.Options{
						Modes:  failover.Modes{Rules: []failover.Rule{{Mode: c.mode}}},
						Budget: time.Minute, // a machine that is slow is not what is tested here
						Local:  memstore.New(&memstore.Options{Now: clock.Now}),
					},
					MaxAge: 1,
					Lease:  c.lease,
				})
				if err != nil {
					t.Fatal(err)
				}
				return storetest.Harness{Store: stacked, Now: clock.Now, Advance: clock.Advance}
			}, c.algorithms...)
		})
	}
}
