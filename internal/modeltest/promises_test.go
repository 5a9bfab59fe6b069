package modeltest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/drivertest"
	"example.com/sash/internal/judge"
	"example.com/sash/internal/redistest"
	"example.com/sash/memstore"
)

// A sorted set gives units back at once behind 999 later calls. Behind 1,000 they stay until they leave the window.
func TestASortedSetGivesNothingBackBehindAThousandCalls(t *testing.T) {
	server := redistest.Start(t)
	for later, back := range map[int]int64{999: 2, 1000: 0} {
		store, clock, _ := virtual(t, server.Addr(), nil)
		s := newScenario(store, clock, newPolicy(t, options(sash.SortedSetLog), sash.PerHour(5000)))
		s.oracle, s.settles = nil, true
		charge := s.call(2, 0)
		s.calls(later, time.Microsecond)
		s.back(2, charge)
		s.wantLeft(5000 - int64(later) - 2 + back)
		clock.Advance(time.UnixMicro(charge.At).Add(time.Hour).Sub(clock.Now()))
		if s.wantLeft(5000 - int64(later)); s.err != nil {
			t.Errorf("behind %d calls: %v", later, s.err)
		}
	}
}

// What no window counts any more leaves a sorted set, whether one leaves as one comes or many left since the last call,
// and what a longer window still counts stays.
func TestMembersLeaveASortedSetWithTheirWindow(t *testing.T) {
	store, clock, scripts := virtual(t, redistest.Start(t).Addr(), nil)
	short := newPolicy(t, options(sash.SortedSetLog), sash.Every(1000, 10*time.Second))
	long := newPolicy(t, options(sash.SortedSetLog), sash.Every(1000, 15*time.Second))
	s := newScenario(store, clock, short)
	members := func(what string, want int64) {
		t.Helper()
		s.call(1, 0)
		if n := scripts.client.ZCard(t.Context(), store.Key(s.name, s.policy)).Val() - 1; n != want || s.err != nil { // one is the head
			t.Fatalf("%s: %d members, want %d (%v)", what, n, want, s.err)
		}
	}
	for i := range 100 {
		clock.Advance(time.Second)
		members("one a second", int64(min(i+1, 10)))
	}
	s.calls(5, time.Millisecond)
	clock.Advance(11 * time.Second)
	members("after a window without calls", 1)
	clock.Advance(time.Millisecond)
	s.policy = long // from now on the key keeps 15 seconds, and its expiry is later already
	s.call(1, 0)
	clock.Advance(12 * time.Second)
	s.policy = short
	s.call(1, 0)
	clock.Advance(time.Second)
	members("a longer window has been seen", 4)
}

// When the clock goes back after a key has expired, its charges do not come back. At most N more are admitted, as when the state is lost.
func TestAClockThatGoesBackBringsNoExpiredChargesBack(t *testing.T) {
	server := redistest.Start(t)
	for _, a := range sash.Algorithms() {
		t.Run(a.String(), func(t *testing.T) {
			store, clock, _ := virtual(t, server.Addr(), nil)
			s := newScenario(store, clock, newPolicy(t, options(a), sash.PerMinute(3)))
			s.oracle = nil
			fills := func() {
				t.Helper()
				for i := range 10 {
					if got := s.call(1, 0); got.Allowed() != (i < 3) || s.err != nil {
						t.Errorf("call %d of 3: allowed is %v, %v", i, got.Allowed(), s.err)
					}
				}
			}
			fills()
			clock.Advance(time.Hour)
			s.call(0, 0) // the key goes
			clock.Advance(time.Second - time.Hour)
			fills()
		})
	}
}

func newPolicy(t testing.TB, opts *sash.Options, limits ...sash.Limit) *driver.Policy {
	t.Helper()
	return must(sash.NewPolicy(opts, limits...))
}

func newLimiter(t testing.TB, store driver.Store, opts *sash.Options, limits ...sash.Limit) *sash.Limiter {
	t.Helper()
	return must(sash.New(store, opts, limits...))
}

// A server whose clock is within a window of 1970, as that of a board without a battery is, decides like any other: with
// sliding limits, and with those of the calendar, whose periods began before 1970. So does memory.
func TestAClockNear1970(t *testing.T) {
	server := redistest.Start(t)
	limits := []sash.Limit{sash.Every(3, time.Hour)}
	for _, zone := range []string{"UTC", "America/Los_Angeles", "Pacific/Auckland", "Asia/Kolkata"} {
		in := must(time.LoadLocation(zone))
		limits = append(limits, sash.PerCalendar(3, sash.CalendarHour, in),
			sash.PerCalendar(3, sash.CalendarDay, in), sash.PerCalendar(3, sash.CalendarMonth, in))
	}
	for _, a := range sash.Algorithms() {
		for _, limit := range limits {
			policy, err := sash.NewPolicy(options(a), limit)
			if err != nil {
				continue // the algorithm has no calendar
			}
			t.Run(a.String()+" "+limit.String(), func(t *testing.T) {
				redis, clock, _ := virtual(t, server.Addr(), nil)
				for _, store := range []driver.Store{redis, memstore.New(&memstore.Options{Now: clock.Now})} {
					clock.Advance(time.Unix(10, 0).Sub(clock.Now()))
					window := 2 * time.Hour
					if limit.Period != 0 {
						_, end := policy.Limits[0].Bounds(clock.Now().UnixMicro())
						window = time.UnixMicro(end).Sub(clock.Now())
					}
					s := newScenario(store, clock, policy)
					for i := range 8 {
						if answer := s.call(1, 0); s.err != nil || answer.Allowed() != (i%4 < 3) {
							t.Errorf("%T, call %d: allowed is %v, %v", store, i, answer.Allowed(), s.err)
						}
						clock.Advance(time.Second)
						if i == 3 {
							clock.Advance(window)
						}
					}
				}
			})
		}
	}
}

// A clock trembles that is at most a millisecond behind what it has shown, as that of a server that was interrupted while it read its
// clock. By the instants of the answers every bound holds.
func TestTheBoundHoldsOnAClockThatTrembles(t *testing.T) {
	server := redistest.Start(t)
	for _, a := range sash.Algorithms() {
		t.Run(a.String(), func(t *testing.T) {
			for seed := range uint64(60 * *times) {
				clock := judge.NewClock(start)
				if err := trembles(memstore.New(&memstore.Options{Now: clock.Now}), clock, a, seed); err != nil {
					t.Fatalf("memory, seed %d: %v", seed, err)
				}
			}
			for seed := range uint64(15 * *times) {
				store, clock, _ := virtual(t, server.Addr(), nil)
				if err := trembles(store, clock, a, seed); err != nil {
					t.Fatalf("Redis, seed %d: %v", seed, err)
				}
			}
		})
	}
}

// trembles makes calls on two subjects, alone and together, and checks what was admitted to each.
func trembles(store driver.Store, clock *judge.Clock, a sash.Algorithm, seed uint64) (err error) {
	defer caught(&err)
	ctx, rng := context.Background(), rand.New(rand.NewPCG(seed, 23))
	limits := []sash.Limit{sash.Every(8, 50*time.Millisecond), sash.Every(30, 400*time.Millisecond)}[:1+rng.IntN(2)]
	opts := &sash.Options{Algorithm: a}
	if a == sash.SlidingBuckets {
		opts.Resolution = 2 * time.Millisecond
	}
	policy := must(sash.NewPolicy(opts, limits...))
	var admitted [2][]judge.Call
	var behind time.Duration
	for step := range 400 {
		clock.Advance(time.Duration(rng.IntN(6_000))*time.Microsecond + behind)
		behind = time.Duration(rng.IntN(2)*rng.IntN(1001)) * time.Microsecond
		clock.Advance(-behind)
		reqs := make([]driver.Request, 0, 2)
		first, n := rng.IntN(2), 1+rng.IntN(3)/2
		for i := first; i < first+n; i++ {
			reqs = append(reqs, driver.Request{Key: fmt.Sprint("tremble", seed, a, i%2), Policy: policy, Cost: 1 + rng.Int64N(3)})
			if store.Powers()&driver.CanBook != 0 && policy.Bookable() && step%100 > 50 && rng.IntN(3) == 0 {
				reqs[0].Within = rng.Int64N(100_000)
			}
			reqs[len(reqs)-1].Within = reqs[0].Within
		}
		answers := make([]driver.Answer, 1)
		switch {
		case n > 1:
			answers, err = drivertest.Of(store).All(ctx, reqs...)
		case rng.IntN(3) == 0:
			answers[0], err = drivertest.Of(store).Once(ctx, fmt.Sprint(step), reqs[0])
		default:
			answers[0], err = drivertest.Of(store).Decide(ctx, reqs[0])
		}
		check(err)
		for i := range answers {
			if answers[i].At != answers[0].At {
				return fmt.Errorf("one call is decided at %d and at %d", answers[0].At, answers[i].At)
			}
			if k := (first + i) % 2; answers[0].Allowed() && answers[len(answers)-1].Allowed() {
				admitted[k] = append(admitted[k], judge.Call{At: time.UnixMicro(answers[i].At), Cost: reqs[i].Cost})
			}
		}
	}
	for _, calls := range admitted {
		check(trembled(a, limits, calls))
	}
	return nil
}

// trembled checks admissions against the bound of an algorithm.
func trembled(a sash.Algorithm, limits []sash.Limit, calls []judge.Call) error {
	for _, limit := range limits {
		switch a {
		case sash.FixedWindow: // N in each window from a multiple of its length on
			counts := make(map[time.Time]int64)
			for _, c := range calls {
				from := c.At.Truncate(limit.Window)
				if counts[from] += c.Cost; counts[from] > limit.Units {
					return fmt.Errorf("%v: the window from %v on holds %d", limit, from, counts[from])
				}
			}
			continue
		case sash.SlidingCounter, sash.GCRA:
			limit.Units *= 2
		}
		check(judge.CheckHistory([]sash.Limit{limit}, calls))
	}
	return nil
}
