package storetest

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
)

// takingCases test calls of which the caller does not fix the units, on stores that support them.
var takingCases = []testCase{
	{
		name:    "as much as fits",
		promise: "AllowUpTo charges what is left, up to the cost, and a refusal is one of a single unit",
		run: func(s *suite) {
			power[driver.Taker](s)
			l := s.limiter(sash.Every(10, window), sash.Every(12, 3*window))
			for _, c := range []struct{ cost, charged, left int64 }{{4, 4, 6}, {100, 6, 0}, {3, 0, 0}} {
				res := s.upTo(l, "k", c.cost)
				if res.Charged != c.charged || res.Allowed != (c.charged > 0) || res.Remaining != c.left {
					s.broken("up to %d units: %d are charged, allowed %v, %d remain; want %d charged and %d left",
						c.cost, res.Charged, res.Allowed, res.Remaining, c.charged, c.left)
				}
			}
			one, many := s.allow(l, "k", 1), s.upTo(l, "k", 7)
			if many.RetryAfter != one.RetryAfter {
				s.broken("refused for %v, and one unit for %v", many.RetryAfter, one.RetryAfter)
			}
			s.Advance(many.RetryAfter)
			if res := s.upTo(l, "k", 7); res.Charged < 1 {
				s.broken("refused after RetryAfter, for another %v", res.RetryAfter)
			}
		},
	},
	{
		name:    "as much as fits, whatever is in use",
		promise: "AllowUpTo charges exactly the units that a peek reports as left, and admits whenever one is",
		run: func(s *suite) {
			power[driver.Taker](s)
			l := s.limiter(sash.Every(17, window), sash.Every(1009, 40*window))
			rng := rand.New(rand.NewPCG(3, 5))
			for range 300 {
				s.Advance(time.Duration(rng.IntN(3_000_000)) * time.Microsecond)
				cost, left := 1+rng.Int64N(20), s.peek(l, "k").Remaining
				res := s.upTo(l, "k", cost)
				if want := min(cost, left); res.Charged != want || res.Remaining != left-want {
					s.broken("up to %d of %d left: %d are charged and %d remain", cost, left, res.Charged, res.Remaining)
				}
			}
		},
	},
	{
		name:    "as much as fits, where refused calls are charged",
		promise: "with CountRefused a call for as much as fits that is refused charges one unit",
		only:    exact,
		run: func(s *suite) {
			power[driver.Taker](s)
			opts := s.options()
			opts.CountRefused = true
			l := s.limiterWith(opts, sash.Every(3, window))
			if res := s.upTo(l, "k", 5); res.Charged != 3 {
				s.broken("%d of 3 are charged", res.Charged)
			}
			s.Advance(window / 2)
			if res := s.upTo(l, "k", 5); res.Allowed || res.Charged != 0 {
				s.broken("allowed %v, %d are charged, and none was left", res.Allowed, res.Charged)
			}
			s.Advance(window / 2)
			s.remain(l, "k", 2, "after a refusal that is charged")
		},
	},
	{
		name:    "concurrent calls for as much as fits",
		promise: "concurrent calls for as much as fits charge exactly the units of the limit",
		run: func(s *suite) {
			power[driver.Taker](s)
			l := s.limiter(sash.Every(100, window))
			var charged atomic.Int64
			var group sync.WaitGroup
			for range 16 {
				group.Go(func() {
					res, err := l.AllowUpTo(s.Context(), "k", 9)
					if err != nil {
						s.Error(err)
					}
					charged.Add(res.Charged)
				})
			}
			group.Wait()
			if n := charged.Load(); n != 100 {
				s.broken("%d of 100 units are charged", n)
			}
		},
	},
	{
		name:    "a penalty",
		promise: "Penalize charges whether or not there is room, and nothing is admitted until enough has left",
		run: func(s *suite) {
			power[driver.Taker](s)
			l := s.limiter(sash.Every(10, window))
			s.align(8 * window)
			if res := s.penalize(l, 4); res.Remaining != 6 || !res.Allowed {
				s.broken("after a penalty of 4 of 10: %d remain, allowed %v", res.Remaining, res.Allowed)
			}
			s.Advance(time.Second)
			res := s.penalize(l, 20)
			if res.Remaining != 0 || s.algorithm != sash.GCRA && res.Allowed { // whose debt is one window at most
				s.broken("after a penalty of 20 of 10: %d remain, allowed %v", res.Remaining, res.Allowed)
			}
			if res.ResetAfter > 2*window {
				s.broken("all units are free after %v", res.ResetAfter)
			}
			s.Advance(res.ResetAfter)
			s.fill(l, "k", 10)
			s.penalize(l, sash.MaxUnits)
			if res := s.allow(l, "k", 1); res.Allowed {
				s.broken("admitted after a penalty of the most units")
			}
		},
	},
	{
		name:    "a penalty that is given back",
		promise: "a penalty forgets nothing: when it is given back, what was charged before still counts",
		only:    exact,
		run: func(s *suite) {
			power[driver.Taker](s)
			l := s.limiter(sash.Every(10, window))
			for range 10 { // as many entries as a ring has places
				s.fill(l, "k", 1)
				s.Advance(2 * resolution)
			}
			for range 5 {
				s.penalize(l, 20)
				s.Advance(2 * resolution)
			}
			s.reward(l, 100, 100)
			s.remain(l, "k", 0, "10 were charged and 100 of a penalty given back")
		},
	},
	{
		name:    "units are given back",
		promise: "Reward frees units at once, as many as are charged and no more",
		run: func(s *suite) {
			power[driver.Taker](s)
			l := s.limiter(sash.Every(100, window), sash.Every(1000, 3*window))
			s.align(8 * window)
			s.reward(l, 7, 0) // nothing is charged
			s.reward(l, sash.MaxUnits, 0)
			for range 20 {
				s.fill(l, "k", 4)
				s.Advance(time.Microsecond)
			}
			s.reward(l, 1, 1)
			s.reward(l, 3, 3)
			s.reward(l, 30, 30)
			s.remain(l, "k", 54, "80 were charged and 34 given back")
			s.fill(l, "k", 54)
			s.reward(l, 1000, 100)
			s.fill(l, "k", 100)
		},
	},
	{
		name:    "the oldest units are given back",
		promise: "Reward takes units from the charges that leave first, so that the others leave no earlier",
		only:    exact,
		run: func(s *suite) {
			power[driver.Taker](s)
			l := s.limiter(sash.Every(40, window))
			for range 40 {
				s.fill(l, "k", 1)
				s.Advance(100 * time.Millisecond)
			}
			s.reward(l, 15, 15)
			// The first charge that is left was the sixteenth.
			want := window - 25*100*time.Millisecond
			if res := s.allow(l, "k", 16); res.Allowed || res.RetryAfter != want {
				s.broken("allowed %v, retry after %v, want %v", res.Allowed, res.RetryAfter, want)
			}
			s.fill(l, "k", 15)
		},
	},
	{
		name:    "before bookings",
		promise: "AllowUpTo delays no booking, and Reward gives none back that lies ahead",
		run: func(s *suite) {
			power[driver.Taker](s)
			l := s.limiter(sash.Every(10, window))
			if !driver.CanBook(s.Store, l.Policy()) {
				return
			}
			s.fill(l, "k", 8)
			s.Advance(time.Second)
			if r, err := l.Book(s.Context(), "k", 5, window); err != nil || r.Result().Delay != window-time.Second {
				s.broken("booked %+v, %v", r.Result(), err)
			}
			if res := s.upTo(l, "k", 9); res.Charged != 2 {
				s.broken("%d are charged before a booking, want 2", res.Charged)
			}
			s.reward(l, 100, 10)
			s.remain(l, "k", 5, "before a booking of 5")
			if res := s.upTo(l, "k", 9); res.Charged != 5 {
				s.broken("%d are charged before a booking of 5, want 5", res.Charged)
			}
			if res := s.penalize(l, 3); res.Remaining != 0 || res.Allowed {
				s.broken("after a penalty before a booking %d remain, allowed %v", res.Remaining, res.Allowed)
			}
		},
	},
	{
		name:    "what has left is not given back",
		promise: "Reward takes nothing from charges that count no more in the limits, and what longer limits count stays",
		only:    exact,
		run: func(s *suite) {
			power[driver.Taker](s)
			short, long := s.limiter(sash.Every(10, window)), s.limiter(sash.Every(20, 4*window))
			s.fill(long, "k", 6)
			s.Advance(2 * window)
			s.reward(short, 6, 0)
			s.fill(short, "k", 5)
			s.reward(short, 6, 5)
			s.remain(long, "k", 14, "under the longer limit, which counts 6")
			s.fill(long, "k", 14)
		},
	},
}

// taker reports whether the store takes and gives units.
func taker(s *suite) bool {
	_, ok := driver.As[driver.Taker](s.Store)
	return ok
}

func (s *suite) upTo(l *sash.Limiter, key string, cost int64) sash.Result {
	s.Helper()
	res, err := l.AllowUpTo(s.Context(), key, cost)
	if err != nil {
		s.Fatalf("AllowUpTo(%q, %d): %v", key, cost, err)
	}
	return res
}

func (s *suite) penalize(l *sash.Limiter, units int64) sash.Result {
	s.Helper()
	res, err := l.Penalize(s.Context(), "k", units)
	if err != nil {
		s.Fatalf("Penalize(k, %d): %v", units, err)
	}
	return res
}

// reward gives units back, and fails the test unless so many were.
func (s *suite) reward(l *sash.Limiter, units, want int64) {
	s.Helper()
	res, err := l.Reward(s.Context(), "k", units)
	if err != nil {
		s.Fatalf("Reward(k, %d): %v", units, err)
	}
	if res.Charged != want {
		s.broken("of %d units %d were given back, want %d", units, res.Charged, want)
	}
	if left := s.peek(l, "k").Remaining; left != res.Remaining {
		s.broken("the answer says that %d remain, and a peek %d", res.Remaining, left)
	}
}
