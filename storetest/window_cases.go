package storetest

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"example.com/sash"
)

const window = 10 * time.Second

// windowCases test one limit on one subject.
var windowCases = []testCase{
	{
		name:    "a fresh subject has all its units",
		promise: "a subject that was never charged has all its units and no time to wait",
		run: func(s *suite) {
			res := s.peek(s.limiter(sash.Every(5, window)), "k")
			l := res.Limits()[0]
			if !res.Allowed || res.Remaining != 5 || res.RetryAfter != 0 || res.ResetAfter != 0 || l.ReleaseAfter != 0 {
				s.broken("a peek at a fresh subject answered %+v", l)
			}
		},
	},
	{
		name:    "units are admitted and no more",
		promise: "a limit of N units admits N units in an instant, and not one more",
		run: func(s *suite) {
			l := s.limiter(sash.Every(5, window))
			for left := int64(4); left >= 0; left-- {
				if res := s.allow(l, "k", 1); !res.Allowed || res.Remaining != left || res.RetryAfter != 0 {
					s.broken("allowed %v, %d remain, retry after %v, want %d to remain", res.Allowed, res.Remaining, res.RetryAfter, left)
				}
			}
			res := s.allow(l, "k", 1)
			by, ok := res.RefusedBy()
			if res.Allowed || !ok || by.Limit.Units != 5 || res.RetryAfter <= 0 || res.Remaining != 0 {
				s.broken("the sixth call of five: allowed %v, refused by %+v, retry after %v", res.Allowed, by, res.RetryAfter)
			}
		},
	},
	{
		name:    "the clock is the store's",
		promise: "At is the store's clock when it decided",
		run: func(s *suite) {
			l := s.limiter(sash.Every(5, window))
			for range 3 {
				if res := s.allow(l, "k", 1); !res.At.Equal(s.Now()) {
					s.broken("At is %v, the clock shows %v", res.At, s.Now())
				}
				s.Advance(time.Microsecond)
			}
		},
	},
	{
		name:    "the edge of the window",
		promise: "a charge leaves exactly one window after it was made; one microsecond earlier it counts",
		only:    exact,
		run: func(s *suite) {
			l := s.limiter(sash.Every(5, window))
			s.fill(l, "k", 5)
			s.Advance(window - time.Microsecond)
			if res := s.allow(l, "k", 1); res.Allowed || res.RetryAfter != time.Microsecond {
				s.broken("a microsecond before the window has passed: allowed %v, retry after %v", res.Allowed, res.RetryAfter)
			}
			s.Advance(time.Microsecond)
			if res := s.allow(l, "k", 5); !res.Allowed {
				s.broken("when the window has passed: refused for %v", res.RetryAfter)
			}
		},
	},
	{
		name:    "bursts on both sides of a boundary",
		promise: "with 50 units per 10 s and bursts one second before and after a multiple of 10 s, each algorithm admits its known number: the exact ones 50",
		run: func(s *suite) {
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
		},
	},
	{
		name:    "retry after is exact",
		promise: "RetryAfter is the shortest time after which the same call is admitted if no other call arrives: one microsecond before, it is refused",
		run: func(s *suite) {
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
		},
	},
	{
		name:    "retry after looks as deep as the cost",
		promise: "RetryAfter depends on the cost of the call, not on the oldest charge",
		only:    exact,
		run: func(s *suite) {
			l := s.limiter(sash.Every(10, window))
			for range 10 {
				s.fill(l, "k", 1)
				s.Advance(time.Second)
			}
			for cost := int64(2); cost <= 10; cost++ {
				// Ten seconds later the first is leaving now: cost-1 seconds until the charge that makes room.
				want := time.Duration(cost-1) * time.Second
				if res := s.allow(l, "k", cost); res.Allowed || res.RetryAfter != want {
					s.broken("cost %d: allowed %v, retry after %v, want %v", cost, res.Allowed, res.RetryAfter, want)
				}
			}
		},
	},
	{
		name:    "a peek charges nothing",
		promise: "a peek changes nothing and returns the units left",
		run: func(s *suite) {
			l := s.limiter(sash.Every(5, window))
			s.fill(l, "k", 2)
			for range 10 {
				if res := s.peek(l, "k"); !res.Allowed || res.Remaining != 3 {
					s.broken("allowed %v, %d remain, want 3", res.Allowed, res.Remaining)
				}
			}
			s.fill(l, "k", 3)
			if res := s.peek(l, "k"); !res.Allowed || res.Remaining != 0 {
				s.broken("a peek at a full limit: allowed %v, %d remain", res.Allowed, res.Remaining)
			}
		},
	},
	{
		name:    "a refusal charges nothing",
		promise: "a refused call charges nothing, so it starves no caller",
		run: func(s *suite) {
			l := s.limiter(sash.Every(10, window))
			s.fill(l, "k", 7)
			for range 20 {
				if res := s.allow(l, "k", 9); res.Allowed || res.Remaining != 3 {
					s.broken("9 units where 3 remain: allowed %v, %d remain", res.Allowed, res.Remaining)
				}
			}
			s.fill(l, "k", 3)
		},
	},
	{
		name:    "refused calls can be charged",
		promise: "with CountRefused a caller that never stops is never admitted again",
		only:    exact,
		run: func(s *suite) {
			opts := s.options()
			opts.CountRefused = true
			l := s.limiterWith(opts, sash.Every(3, window))
			s.fill(l, "k", 3)
			for range 40 {
				s.Advance(time.Second)
				if s.allow(l, "k", 1).Allowed {
					s.broken("a call a second was admitted")
				}
			}
			res := s.allow(l, "k", 1)
			s.Advance(res.RetryAfter)
			if res := s.allow(l, "k", 1); !res.Allowed {
				s.broken("refused after RetryAfter")
			}
		},
	},
	{
		name:    "silence frees everything",
		promise: "after two windows without a call every unit is free",
		run: func(s *suite) {
			l := s.limiter(sash.Every(5, window))
			s.fill(l, "k", 5)
			s.Advance(2*window + resolution)
			if res := s.peek(l, "k"); res.Remaining != 5 || res.ResetAfter != 0 {
				s.broken("%d units remain, and all are free after %v", res.Remaining, res.ResetAfter)
			}
			s.fill(l, "k", 5)
		},
	},
	{
		name:    "a bucket holds a unit a little longer",
		promise: "sliding buckets hold a unit at most Resolution longer than its window, and never shorter than its window",
		only:    func(a sash.Algorithm) bool { return a == sash.SlidingBuckets },
		run: func(s *suite) {
			l := s.limiter(sash.Every(2, window))
			s.align(resolution)
			s.fill(l, "k", 1)
			s.Advance(resolution - time.Microsecond)
			s.fill(l, "k", 1) // joins the first
			res := s.allow(l, "k", 1)
			if res.RetryAfter > window || res.RetryAfter < window-resolution {
				s.broken("retry after %v", res.RetryAfter)
			}
			s.Advance(res.RetryAfter)
			s.fill(l, "k", 2)
		},
	},
	{
		name:    "concurrent calls",
		promise: "concurrent calls admit exactly the units of the limit",
		run: func(s *suite) {
			l := s.limiter(sash.Every(100, window))
			var admitted atomic.Int64
			var group sync.WaitGroup
			for range 16 {
				group.Go(func() {
					for range 20 {
						res, err := l.Allow(s.Context(), "k")
						if err != nil {
							s.Error(err)
							return
						}
						if res.Allowed {
							admitted.Add(1)
						}
					}
				})
			}
			group.Wait()
			if n := admitted.Load(); n != 100 {
				s.broken("%d of 100 units were admitted", n)
			}
		},
	},
}
