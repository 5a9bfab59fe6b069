package modeltest

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"
	_ "time/tzdata" // the zones, also where the system has none

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/internal/judge"
	"example.com/sash/internal/redistest"
	"example.com/sash/internal/threshold"
	"example.com/sash/memstore"
	"example.com/sash/redisstore"
	"example.com/sash/stack"
	"example.com/sash/storetest"
)

// start is far from any real time, so that the store's idea of the time is never right by chance.
var start = time.Date(2031, 3, 29, 22, 59, 58, 999_999_000, time.UTC)

// virtual is a store on a real server, with scripts and keys that live on a clock of the test's.
func virtual(t testing.TB, addr string, edit func(name, text string) string) (*redisstore.Store, *judge.Clock, *scripter) {
	clock := judge.NewClock(start)
	s := &scripter{client: newClient(addr), clock: clock, edit: edit, aging: &aging{ends: make(map[string]time.Time)}}
	t.Cleanup(func() { s.client.Close() })
	return redisstore.New(s, nil), clock, s
}

var walks atomic.Int64 // numbers the walks on one server

// conforms runs the suite on a store, and random calls whose answers are those of the definition.
func conforms(t *testing.T, open func(testing.TB) (driver.Store, *judge.Clock), algorithms ...sash.Algorithm) {
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		store, clock := open(t)
		return storetest.Harness{Store: store, Now: clock.Now, Advance: clock.Advance}
	}, algorithms...)
	for _, a := range algorithms {
		for usual, steps := range []int{calls: 50, many: 100, choices: 100} {
			t.Run(fmt.Sprint(a, "/random calls, usually ", usual), func(t *testing.T) {
				store, clock := open(t)
				for seed := range uint64(20 * *times) {
					if err := randomCalls(setup{
						store: store, clock: clock, algorithm: a, usual: usualCall(usual), steps: steps,
						prefix: fmt.Sprintf("walk%d:", seed), choose: rand.New(rand.NewPCG(seed, 0)).IntN,
					}); err != nil {
						t.Fatalf("walk %d: %v", seed, err)
					}
				}
			})
		}
	}
}

// flushed returns what opens a store on an empty server.
func flushed(server *redistest.Server) func(testing.TB) (driver.Store, *judge.Clock) {
	return func(t testing.TB) (driver.Store, *judge.Clock) {
		server.Must(t, "FLUSHALL")
		store, clock, _ := virtual(t, server.Addr(), nil)
		return store, clock
	}
}

func inMemory(testing.TB) (driver.Store, *judge.Clock) {
	clock := judge.NewClock(start)
	return memstore.New(&memstore.Options{Now: clock.Now}), clock
}

func TestMemoryConforms(t *testing.T) { conforms(t, inMemory, sash.Algorithms()...) }

// Bookings agree with the definition where few of them are many.
func TestMemoryBooksByTheDefinition(t *testing.T) {
	before := threshold.Log
	defer func() { threshold.Log = before }()
	threshold.Log.Ahead, threshold.Log.Walk = 6, 3
	for _, a := range []sash.Algorithm{sash.SlidingLog, sash.SlidingBuckets} {
		for seed := range uint64(400) {
			store, clock := inMemory(t)
			choose := rand.New(rand.NewPCG(seed, 2)).IntN
			if err := randomCalls(setup{store: store, clock: clock, algorithm: a, steps: 80, choose: choose}); err != nil {
				t.Fatalf("%v, seed %d: %v", a, seed, err)
			}
		}
	}
}

func TestRedisConforms(t *testing.T) { conforms(t, flushed(redistest.Start(t)), sash.Algorithms()...) }

// The promises of a store hold where rings have other sizes and searches take other ways.
func TestRedisConformsWithSmallThresholds(t *testing.T) {
	server := redistest.Start(t)
	conforms(t, func(t testing.TB) (driver.Store, *judge.Clock) {
		server.Must(t, "FLUSHALL")
		store, clock, scripts := virtual(t, server.Addr(), nil)
		scripts.thresholds = smallSteps
		return store, clock
	}, exacts...)
}

// The promises hold over the stack. The suite's clock is not that of denials, so no refusal is kept for long. Leases make
// sliding windows longer, and no others.
func TestTheStackConforms(t *testing.T) {
	const longest = 100 * time.Millisecond
	onRedis := flushed(redistest.Start(t))
	for _, c := range []struct {
		name       string
		open       func(testing.TB) (driver.Store, *judge.Clock)
		mode       failover.Mode
		lease      time.Duration
		algorithms []sash.Algorithm
	}{
		{"memstore, closed", inMemory, failover.Closed, 0, []sash.Algorithm{sash.SlidingLog, sash.SlidingBuckets}},
		{"memstore, local, leases", inMemory, failover.Local, longest, []sash.Algorithm{sash.SlidingCounter, sash.FixedWindow, sash.GCRA}},
		{"redis, local", onRedis, failover.Local, 0, sash.Algorithms()},
		{"redis, closed, leases", onRedis, failover.Closed, longest, []sash.Algorithm{sash.GCRA}},
	} {
		t.Run(c.name, func(t *testing.T) {
			conforms(t, func(t testing.TB) (driver.Store, *judge.Clock) {
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
				return stacked, clock
			}, c.algorithms...)
		})
	}
}
