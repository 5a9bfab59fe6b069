package storetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
)

// concurrentCases have many callers at once.
var concurrentCases = []testCase{
	{"concurrent calls", "concurrent calls admit exactly the units of the limit", nil, func(s *suite) {
		l := s.limiter(sash.Every(100, window))
		if n := s.concurrent(20, func(int) (int64, error) { return units(l.Allow(s.Context(), "k")) }); n != 100 {
			s.broken("%d of 100 units were admitted", n)
		}
	}},
	{"concurrent calls for as much as fits",
		"concurrent calls for as much as fits charge exactly the units of the limit",
		nil, func(s *suite) {
			s.needs(driver.CanTake)
			l := s.limiter(sash.Every(100, window))
			if n := s.concurrent(1, func(int) (int64, error) {
				res, err := l.AllowUpTo(s.Context(), "k", 9)
				return res.Charged, err
			}); n != 100 {
				s.broken("%d of 100 units are charged", n)
			}
		}},
	{"concurrent reservations",
		"concurrent reservations and settlements never hold more than the limit, and leave the units used",
		nil, func(s *suite) {
			s.needs(driver.CanSettle)
			l := s.limiter(sash.Every(100, window))
			var held, most atomic.Int64
			used := s.concurrent(10, func(int) (int64, error) {
				r, err := l.Reserve(s.Context(), "k", 20, nil)
				if err != nil || !r.Allowed() {
					return 0, err
				}
				for n := held.Add(20); ; {
					if now := most.Load(); n <= now || most.CompareAndSwap(now, n) {
						break
					}
				}
				held.Add(1 - 20) // the store gives back after that
				return 1, r.Settle(s.Context(), 1)
			})
			if left := s.peek(l, "k").Remaining; most.Load() > 100 || left != 100-used {
				s.broken("%d units were held at once; %d calls used one each, and %d of 100 remain", most.Load(), used, left)
			}
		}},
	{"concurrent repetitions",
		"of any number of concurrent calls with one ID exactly one is charged, and all are admitted",
		nil, func(s *suite) {
			s.needs(driver.CanID)
			s.align(8 * window)
			l := s.limiter(sash.Every(10, window))
			n := s.concurrent(2, func(i int) (int64, error) { return units(l.AllowOnce(s.Context(), fmt.Sprint(i%3), "k", 3)) })
			if left := s.peek(l, "k").Remaining; n != 32 || left != 1 {
				s.broken("%d of 32 were admitted, and 3 calls of 3 leave %d", n, left)
			}
		}},
	{"concurrent bookings", "concurrent bookings fill every window, and no more", nil, func(s *suite) {
		l := s.limiter(sash.Every(5, window))
		if s.Store.Powers()&driver.CanBook == 0 || !l.Policy().Bookable() {
			s.Skip("the store does not book under this algorithm")
		}
		var delays [16]atomic.Int64
		s.concurrent(5, func(int) (int64, error) {
			r, err := l.Reserve(s.Context(), "k", 1, &sash.ReserveOptions{WaitUpTo: time.Hour})
			if err == nil && r.Allowed() {
				delays[r.Result().Delay/window].Add(1)
			}
			return 0, err
		})
		for i := range delays {
			if n := delays[i].Load(); n != 5 {
				s.broken("%d bookings start in %d windows, want 5", n, i)
			}
		}
	}},
	{"concurrent cool-downs end with the latest", "comparing and beginning are one atomic step", oneAlgorithm, func(s *suite) {
		s.needs(driver.CanCool)
		length := func(i int) int64 { return (time.Duration(1+i*7%16) * time.Minute).Microseconds() }
		for range 10 {
			s.concurrent(1, func(i int) (int64, error) {
				c, err := s.cool("k", driver.CoolDown{Length: length(i)})
				if c.Left < length(i) {
					s.Errorf("%d µs leave %d", length(i), c.Left)
				}
				return 0, err
			})
			if c, err := s.cool("k", driver.CoolDown{}); err != nil || c.Left != (16*time.Minute).Microseconds() {
				s.broken("the latest of all is %+v, %v", c, err)
			}
			s.Advance(time.Hour)
		}
	}},
}

// concurrent has 16 callers make calls at once, and returns the sum of what they return.
func (s *suite) concurrent(calls int, call func(caller int) (int64, error)) int64 {
	var sum atomic.Int64
	var group sync.WaitGroup
	for i := range 16 {
		group.Go(func() {
			for range calls {
				n, err := call(i)
				if err != nil {
					s.Error(err)
				}
				sum.Add(n)
			}
		})
	}
	group.Wait()
	return sum.Load()
}

func units(res sash.Result, err error) (int64, error) {
	if res.Allowed {
		return 1, err
	}
	return 0, err
}

// randomCases make random calls, or count the units that many calls admit.
var randomCases = []testCase{
	{"random calls", "every field of every answer to random calls is that of memstore", notGCRA, func(s *suite) {
		for seed := range uint64(20) {
			compareWithMemory(s, rand.New(rand.NewPCG(seed, 0)), fmt.Sprintf("{walk%d}", seed), seed%4 == 3)
		}
	}},
	{"bursts on both sides of a boundary",
		"with 50 units per 10 s and bursts one second before and after a multiple of 10 s, each algorithm admits its known number: the exact ones 50",
		nil, func(s *suite) {
			l := s.limiter(sash.Every(50, window))
			s.align(window)
			s.Advance(9 * time.Second)
			accepted := 0
			for range 2 {
				for range 60 {
					if s.allow(l, "k", 1).Allowed {
						accepted++
					}
				}
				s.Advance(2 * time.Second)
			}
			want := 50
			switch s.algorithm {
			case sash.FixedWindow:
				want = 100
			case sash.SlidingCounter: // nine tenths of the last bucket still count
				want = 55
			case sash.GCRA: // two seconds give back ten
				want = 60
			}
			if accepted != want {
				s.broken("%d were admitted, want %d", accepted, want)
			}
		}},
	{"retry after is exact",
		"RetryAfter is the shortest time after which the same call is admitted if no other call arrives: one microsecond before, it is refused",
		nil, func(s *suite) {
			l := s.limiter(sash.Every(20, window), sash.Every(45, 4*window))
			rng := rand.New(rand.NewPCG(1, 2))
			for range 200 {
				cost := 1 + rng.Int64N(20)
				res := s.allow(l, "k", cost)
				if res.Allowed {
					s.Advance(time.Duration(rng.IntN(3_000_000)) * time.Microsecond)
					continue
				}
				s.Advance(res.RetryAfter - time.Microsecond)
				if early := s.allow(l, "k", cost); early.Allowed || early.RetryAfter != time.Microsecond {
					s.broken("cost %d, a microsecond before RetryAfter %v: allowed %v, retry after %v", cost, res.RetryAfter, early.Allowed, early.RetryAfter)
				}
				s.Advance(time.Microsecond)
				if late := s.allow(l, "k", cost); !late.Allowed {
					s.broken("cost %d, after RetryAfter %v: refused for another %v", cost, res.RetryAfter, late.RetryAfter)
				}
			}
		}},
	{"a day ends at midnight",
		"a calendar limit counts from the last local boundary: a day has 23 hours when clocks go forward",
		calendar, func(s *suite) {
			zone, err := time.LoadLocation("America/Los_Angeles")
			if err != nil {
				s.Fatal(err)
			}
			l := s.limiter(sash.PerCalendar(2, sash.CalendarDay, zone), sash.Every(10, window))
			s.Advance(time.Date(2030, 3, 10, 0, 0, 0, 0, zone).Sub(s.Now()) - time.Microsecond)
			for _, wait := range []time.Duration{time.Microsecond, 23 * time.Hour} {
				s.fill(l, "k", 2)
				if res := s.allow(l, "k", 1); res.Allowed || res.RetryAfter != wait {
					s.broken("allowed %v, retry after %v, want %v", res.Allowed, res.RetryAfter, wait)
				}
				s.Advance(time.Microsecond)
			}
		}},
	{"subjects are apart",
		"the charges of one subject take nothing from another, nor from the same key under another algorithm",
		nil, func(s *suite) {
			l := s.limiter(sash.Every(1, window))
			s.fill(l, "a", 1)
			s.fill(l, "b", 1)
			for _, a := range s.algorithms {
				if a != s.algorithm {
					s.fill(s.limiterWith(options(a), sash.Every(1, window)), "a", 1)
				}
			}
		}},
	{"an ID is its key's", "the same ID names another call on another key, and IDs and keys may contain any bytes", nil, func(s *suite) {
		s.needs(driver.CanID)
		s.align(8 * window)
		l, long, want := s.limiter(sash.Every(10, window)), strings.Repeat("x", driver.MaxIDLength-1), make(map[string]int64)
		calls := [][2]string{
			{"id", "a"}, {"id", "b"}, {"id", "a:b"}, {"b:id", "a"}, {"ID", "a"}, {"{id}", "{t}:a"}, {"id", "{t}:a"}, {"id", "{t}:b"},
			{"\x00\r\n\xff", "a"}, {"\x00\r\n\xfe", "a"}, {long + "1", "b"}, {long + "2", "b"}, {"}id", "{"}, {"id", "{}"},
		}
		for _, c := range calls {
			want[c[1]]++
			for range 2 {
				if res, err := l.AllowOnce(s.Context(), c[0], c[1], 1); err != nil || !res.Allowed {
					s.broken("%q of %q: %+v, %v", c[0], c[1], res, err)
				}
			}
		}
		for key, used := range want {
			if left := s.peek(l, key).Remaining; left != 10-used {
				s.broken("%d units of %q remain after %d calls of 1 of 10", left, key, used)
			}
		}
	}},
	{"a firm refusal holds", "a firm refusal is not followed by room before its RetryAfter, whatever is settled", nil, func(s *suite) {
		s.needs(driver.CanSettle)
		l := s.limiter(sash.Every(40, window))
		for n := range 40 { // through every growth of a log, with the settled charge at any place
			key := fmt.Sprint("k", n)
			var r *sash.Reservation
			for i := range 40 {
				if i == n {
					var err error
					if r, err = l.Reserve(s.Context(), key, 1, nil); err != nil || !r.Allowed() {
						s.Fatalf("%+v, %v", r, err)
					}
				} else {
					s.fill(l, key, 1)
				}
				s.Advance(time.Microsecond)
			}
			for range 2 { // a refusal must not change the next answer
				refusal, err := driver.Decide(s.Context(), s.Store, driver.Request{Key: key, Cost: 1, Policy: l.Policy()})
				if err != nil {
					s.Fatal(err)
				}
				if !refusal.Firm {
					continue
				}
				if err := r.Cancel(s.Context()); err != nil {
					s.Fatal(err)
				}
				if res := s.allow(l, key, 1); res.Allowed {
					s.broken("a call was refused firmly, charge %d of 40 was given back, and the next call was admitted", n)
				}
			}
		}
	}},
	{"refusals are not firm while bookings lie ahead",
		"a refusal is firm only if its retry time is exact, and while bookings lie ahead it is an upper bound",
		exact, func(s *suite) {
			l := s.limiter(sash.Every(2, window))
			if s.Store.Powers()&driver.CanBook == 0 || !l.Policy().Bookable() {
				s.Skip("the store does not book under this algorithm")
			}
			s.fill(l, "k", 2)
			for _, within := range []int64{window.Microseconds(), window.Microseconds(), window.Microseconds(), 0, 1} {
				res, err := driver.Decide(s.Context(), s.Store, driver.Request{Key: "k", Cost: 1, Policy: l.Policy(), Within: within})
				if err != nil || !res.Allowed() && res.Firm {
					s.broken("a refusal within %d is firm: %+v, %v", within, res, err)
				}
			}
		}},
	{"algorithms that cannot extend", "extending is an error under an algorithm that does not keep the instants of charges",
		func(a sash.Algorithm) bool { return !extends(a) }, func(s *suite) {
			l := s.limiter(sash.Every(10, window))
			s.fill(l, "k", 1)
			set := driver.Settlement{Request: driver.Request{Key: "k", Cost: 1, Policy: l.Policy(), MaySettle: true}, At: s.Now().UnixMicro()}
			s.needs(driver.CanExtend)
			if at, err := s.do(driver.Op{Kind: driver.Extend, Settlement: set}); !errors.Is(err, driver.ErrUnsupported) {
				s.broken("it returned %v, %v", at, err)
			}
		}},
}
