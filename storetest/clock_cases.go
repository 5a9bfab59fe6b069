package storetest

import (
	"time"

	"example.com/sash"
)

// clockCases test a clock that jumps.
var clockCases = []testCase{
	{
		name:    "a clock that goes back admits no more",
		promise: "when the clock goes back, no charge that counted is forgotten",
		only:    func(a sash.Algorithm) bool { return a != sash.GCRA && a != sash.SlidingCounter },
		run: func(s *suite) {
			l := s.limiter(sash.Every(5, window))
			s.align(window)
			s.Advance(window / 2)
			s.fill(l, "k", 5)
			for _, back := range []time.Duration{time.Microsecond, time.Second, window, time.Hour} {
				s.Advance(-back)
				if res := s.allow(l, "k", 1); res.Allowed {
					s.broken("a call was admitted after the clock went back by %v", back)
				}
			}
		},
	},
	{
		name:    "a clock that goes back locks no caller out",
		promise: "when the clock goes back, no caller waits longer than the window",
		only:    func(a sash.Algorithm) bool { return a != sash.SlidingCounter },
		run: func(s *suite) {
			l := s.limiter(sash.Every(5, window))
			for range 5 {
				s.fill(l, "k", 1)
				s.Advance(time.Microsecond)
			}
			s.Advance(-time.Hour)
			if res := s.allow(l, "k", 5); res.RetryAfter > window || res.ResetAfter > window {
				s.broken("an hour back: retry after %v, reset after %v, with a window of %v", res.RetryAfter, res.ResetAfter, window)
			}
			s.Advance(window)
			s.fill(l, "k", 5)
		},
	},
	{
		name:    "charges are dated anew once",
		promise: "a charge later than now counts as made now, and leaves a window after that",
		only:    exact,
		run: func(s *suite) {
			l := s.limiter(sash.Every(5, window))
			s.fill(l, "k", 2)
			s.Advance(3 * time.Second)
			s.fill(l, "k", 3)
			s.Advance(-2 * time.Second) // the first charge is a second old, the second is in the future
			if res := s.allow(l, "k", 3); res.Allowed || res.RetryAfter != window {
				s.broken("retry after %v, want %v", res.RetryAfter, window)
			}
			if res := s.allow(l, "k", 2); res.Allowed || res.RetryAfter != window-time.Second {
				s.broken("retry after %v, want %v", res.RetryAfter, window-time.Second)
			}
		},
	},
	{
		name:    "a clock that jumps forward",
		promise: "a clock that jumps forward frees the charges that are then out of the window, and no others",
		only:    exact,
		run: func(s *suite) {
			l := s.limiter(sash.Every(5, window))
			s.fill(l, "k", 2)
			s.Advance(4 * time.Second)
			s.fill(l, "k", 3)
			s.Advance(window - 4*time.Second)
			if res := s.peek(l, "k"); res.Remaining != 2 {
				s.broken("%d of 5 remain, want 2", res.Remaining)
			}
			s.Advance(30 * 24 * time.Hour)
			s.fill(l, "k", 5)
		},
	},
	{
		name:    "the most units, and a clock that goes back",
		promise: "charges of the maximum units count as charged now after the clock went back",
		only:    func(a sash.Algorithm) bool { return a == sash.SlidingBuckets }, // a log has too few entries
		run: func(s *suite) {
			opts := s.options()
			opts.CountRefused = true
			l := s.limiterWith(opts, sash.Every(sash.MaxUnits, window))
			s.fill(l, "k", sash.MaxUnits)
			s.allow(l, "k", 1)
			s.Advance(-time.Second)
			if res := s.allow(l, "k", 1); res.Allowed || res.RetryAfter != window {
				s.broken("allowed %v, retry after %v, want %v", res.Allowed, res.RetryAfter, window)
			}
		},
	},
}
