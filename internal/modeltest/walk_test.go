package modeltest

import (
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"
	_ "time/tzdata" // the zones, also where the system has none

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/internal/judge"
	"example.com/sash/internal/redistest"
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
	s := &scripter{client: newClient(t, addr), clock: clock, edit: edit, aging: &aging{ends: make(map[string]time.Time)}}
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
					clock.Advance(2 * time.Millisecond) // past a tremble of the walk before, after which parts of a store stand still
					if err := randomCalls(setup{
						store: store, clock: clock, algorithm: a, usual: usualCall(usual), steps: steps,
						prefix: fmt.Sprintf("walk%d:", seed), choose: rand.New(rand.NewPCG(seed, 0)).IntN, little: seed%2 == 1 && usual != int(choices),
						large: seed%4 > 1,
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

// The values that walks draw from.
var drawnWindows = []time.Duration{
	10 * time.Second, 12 * time.Second, 25 * time.Second, time.Minute, 10*time.Second + time.Microsecond,
	13*time.Second + 333_333*time.Microsecond, time.Hour, 24 * time.Hour,
}

var (
	drawnUnits  = []int64{1, 2, 3, 5, 7, 10, 20, 33, 100, 1000}
	bigUnits    = []int64{1_000_000, sash.MaxUnits / 2} // an entry of a log counts no more than MaxUnits
	resolutions = []time.Duration{time.Second, 250 * time.Millisecond, 10 * time.Second, 3_333 * time.Microsecond, 2 * time.Microsecond}
	zones       = []string{"UTC", "America/Los_Angeles", "Europe/Berlin", "Asia/Kolkata", "Australia/Lord_Howe"}
)

// bookPlans are limits of walks with bookings: few units, so that most calls wait.
var bookPlans = [][]sash.Limit{
	{sash.Every(5, 10*time.Second)},
	{sash.Every(12, 20*time.Second), sash.Every(4, 3*time.Second), sash.Every(9, 12*time.Second)},
	{sash.Every(9, 25*time.Second), sash.Every(6, 10*time.Second), sash.Every(3, time.Second)},
	{sash.PerCalendar(40, sash.CalendarHour, nil), sash.Every(20, time.Minute)},
	{sash.PerCalendar(30, sash.CalendarDay, nil), sash.Every(7, 10*time.Second+time.Microsecond)},
}

// calendarPlans are limits of walks whose bookings reach hours ahead.
var calendarPlans = [][]sash.Limit{
	{sash.PerCalendar(2, sash.CalendarHour, nil)},
	{sash.PerCalendar(3, sash.CalendarHour, nil), sash.Every(2, 10*time.Second)},
	{sash.PerCalendar(9, sash.CalendarDay, nil), sash.PerCalendar(2, sash.CalendarHour, nil)},
	{sash.Every(3, time.Hour), sash.PerCalendar(4, sash.CalendarDay, nil)},
}

// plan draws 1 to 4 limits, seldom more, of different spans.
func (w *walk) plan() (*driver.Policy, error) {
	if w.setup.usual == bookings {
		if all := w.limits; len(w.plans) == 0 {
			if all == nil {
				all = bookPlans
			}
			w.tight = all[w.choose(len(all))]
		}
		limits := slices.Clone(w.tight[:1+len(w.plans)%len(w.tight)])
		slices.Reverse(limits)
		return sash.NewPolicy(&w.opts, limits...)
	}
	n := 1 + w.choose(4)
	if w.choose(10) == 9 {
		n = driver.MaxLimits
	}
	calendar := w.algorithm != sash.SlidingCounter && w.algorithm != sash.GCRA
	var limits []sash.Limit
	have := make(map[string]bool)
	for range n {
		l := sash.Every(drawnUnits[w.choose(len(drawnUnits))], drawnWindows[w.choose(len(drawnWindows))])
		if calendar && w.choose(5) == 4 {
			zone := must(time.LoadLocation(zones[w.choose(len(zones))]))
			l = sash.PerCalendar(l.Units, sash.CalendarHour+sash.Period(w.choose(3)), zone)
		}
		coarse := w.opts.Resolution >= time.Second && l.Window <= time.Hour && l.Period == 0
		if !w.algorithm.Exact() || coarse || w.large && w.algorithm != sash.SortedSetLog { // whose limits are of few units
			if big := w.choose(8); big < len(bigUnits) {
				l.Units = bigUnits[big]
			}
		}
		if !have[span(l)] {
			have[span(l)] = true
			limits = append(limits, l)
		}
	}
	return sash.NewPolicy(&w.opts, limits...)
}

func (w *walk) key() string { return fmt.Sprintf("%sk%d", w.prefix, w.choose(4)/2) }

func (w *walk) request() driver.Request {
	plan := w.plans[w.choose(len(w.plans))]
	req := driver.Request{Key: w.key(), Policy: plan, Cost: 1}
	if w.choose(2) == 1 {
		req.Cost = 1 + int64(w.choose(int(min(plan.MostUnits(), math.MaxInt))))
	}
	if w.setup.usual == bookings {
		req.Cost = min(plan.MostUnits(), 1+int64(w.choose(3)))
		req.Within = []int64{1 + int64(w.choose(30_000_000)), 1 + int64(w.choose(30_000_000)), driver.MaxAhead, 0, 0}[w.choose(5)]
		req.MaySettle = w.choose(2) == 0
	} else if w.books && w.choose(2) == 1 {
		req.Within = min(driver.MaxAhead, 1+int64(w.choose(1<<min(12+w.choose(26), bits.UintSize-2))))
	}
	return req
}
