package storetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
)

// blockCases test that those stay out who are refused too often.
var blockCases = ofBlockers([]testCase{
	{
		name:    "a block",
		promise: "the last of so many refusals within the window begins a block: every call is refused until it ends, and then counting begins anew",
		run: func(s *suite) {
			l := s.blocker(sash.Block{Refusals: 3, Window: window, For: 2 * time.Minute}, sash.Every(2, window))
			s.fill(l, "k", 2)
			for i := range 3 {
				res := s.allow(l, "k", 1)
				if res.Allowed || res.Blocked != (i == 2) {
					s.broken("refusal %d of 3: allowed %v, blocked %v", i+1, res.Allowed, res.Blocked)
				}
			}
			s.Advance(2*time.Minute - time.Microsecond)
			for _, res := range []sash.Result{s.allow(l, "k", 1), s.peek(l, "k")} {
				by, _ := res.RefusedBy()
				if res.Allowed || !res.Blocked || res.RetryAfter != time.Microsecond || res.Remaining != 0 || by.Limit.Units != 2 {
					s.broken("before the end of the block: %+v", res)
				}
			}
			s.Advance(time.Microsecond)
			if res := s.peek(l, "k"); !res.Allowed || res.Blocked {
				s.broken("after the end of the block: %+v", res)
			}
			s.fill(l, "k", 2)
			for i := range 3 {
				if res := s.allow(l, "k", 1); res.Blocked != (i == 2) {
					s.broken("refusal %d of 3 after a block: blocked %v", i+1, res.Blocked)
				}
			}
		},
	},
	{
		name:    "what begins a block",
		promise: "the refusals of calls that charge count within the window; peeks, penalties and admissions do not, nor other keys or limiters without a block",
		run: func(s *suite) {
			l := s.blocker(sash.Block{Refusals: 3, Window: window, For: time.Minute}, sash.Every(2, 4*window))
			plain := s.limiter(sash.Every(2, 4*window))
			s.align(8 * window)
			s.fill(l, "k", 2)
			for range 5 {
				s.peek(l, "k")
				if taker(s) {
					s.penalize(l, 1)
				}
				s.allow(plain, "k", 1)
				s.allow(l, "other", 2)
			}
			for i := range 3 {
				if res := s.allow(l, "k", 1); res.Allowed || res.Blocked != (i == 2) {
					s.broken("refusal %d of 3: %+v", i+1, res)
				}
			}
			if res := s.allow(plain, "k", 1); res.Blocked {
				s.broken("a limiter without a block is %+v", res)
			}
		},
	},
	{
		name:    "refusals that count",
		promise: "exactly the refusals of the last window count: a block begins when they are enough, never before or later",
		run: func(s *suite) {
			for seed := range uint64(6) {
				rng := rand.New(rand.NewPCG(seed, 8))
				b := sash.Block{Refusals: 1 + rng.IntN(5), Window: time.Duration(1+rng.IntN(9)) * time.Second, For: time.Duration(1+rng.IntN(20)) * time.Second}
				l, key := s.blocker(b, sash.Every(3, 7*time.Second)), fmt.Sprint("k", seed)
				var refusals []time.Time
				var ends time.Time
				for step := range 150 {
					s.Advance(time.Duration(rng.IntN(2_000_000)) * time.Microsecond)
					now, cost := s.Now(), 1+rng.Int64N(3)
					var res sash.Result
					if rng.IntN(4) == 0 {
						cost, res = 0, s.peek(l, key)
					} else {
						res = s.allow(l, key, cost)
					}
					blocked := now.Before(ends)
					if !blocked && !res.Allowed && cost > 0 {
						refusals = append(slices.DeleteFunc(refusals, func(at time.Time) bool { return now.Sub(at) >= b.Window }), now)
						if blocked = len(refusals) == b.Refusals; blocked {
							refusals, ends = nil, now.Add(b.For)
						}
					}
					if res.Blocked != blocked || blocked && (res.Allowed || res.RetryAfter < ends.Sub(now)) {
						s.broken("step %d, %+v: blocked %v until %v, and the answer is %+v", step, b, blocked, ends, res)
					}
				}
			}
		},
	},
	{
		name:    "a block is lifted",
		promise: "Reset ends a block and forgets the refusals that count, also that of a limiter without a block",
		run: func(s *suite) {
			power[driver.Resetter](s)
			l := s.blocker(sash.Block{Refusals: 2, Window: window, For: time.Hour}, sash.Every(1, window))
			for range 2 {
				s.fill(l, "k", 1)
				for i := range 2 {
					if res := s.allow(l, "k", 1); res.Blocked != (i == 1) {
						s.broken("refusal %d of 2: blocked %v", i+1, res.Blocked)
					}
				}
				s.reset(l, "k")
			}
			s.fill(l, "k", 1)
			s.allow(l, "k", 1)
			s.reset(l, "k")
			s.fill(l, "k", 1)
			if res := s.allow(l, "k", 1); res.Blocked {
				s.broken("the first refusal after a reset is blocked")
			}
			if res := s.allow(l, "k", 1); !res.Blocked {
				s.broken("the second refusal after a reset: %+v", res)
			}
			s.reset(s.limiter(sash.Every(1, window)), "k")
			if res := s.allow(l, "k", 1); !res.Allowed {
				s.broken("after a reset by a limiter without a block: %+v", res)
			}
		},
	},
	{
		name:    "a block and what is given back",
		promise: "a reward counts as no refusal, and gives back during a block as before",
		run: func(s *suite) {
			power[driver.Taker](s)
			l := s.blocker(sash.Block{Refusals: 2, Window: 10 * window, For: time.Minute}, sash.Every(9, 30*window))
			s.align(64 * window)
			s.fill(l, "k", 9)
			s.penalize(l, 9)
			for range 3 {
				s.reward(l, 1, 1)
			}
			for i := range 2 {
				if res := s.allow(l, "k", 9); res.Allowed || res.Blocked != (i == 1) {
					s.broken("refusal %d of 2: %+v", i+1, res)
				}
			}
			if res, err := l.Reward(s.Context(), "k", 3); err != nil || res.Charged != 3 {
				s.broken("of 3 units %d were given back during a block, %v", res.Charged, err)
			}
		},
	},
	{
		name:    "a block and other calls",
		promise: "a call with an ID is repeated during a block, calls for as much as fits and refused calls that are charged count, and a blocked call charges nothing",
		run: func(s *suite) {
			_, once := s.Store.(driver.Deduplicator)
			for _, count := range []bool{false, true} {
				opts := s.options()
				opts.Block, opts.CountRefused = sash.Block{Refusals: 3, Window: window, For: time.Minute}, count
				l, key := s.limiterWith(opts, sash.Every(2, 30*window)), fmt.Sprint("k", count)
				s.align(64 * window)
				if once {
					if res, err := l.AllowOnce(s.Context(), "id", key, 2); err != nil || !res.Allowed {
						s.broken("%+v, %v", res, err)
					}
				} else {
					s.fill(l, key, 2)
				}
				s.allow(l, key, 2)
				if taker(s) {
					s.upTo(l, key, 2)
				} else {
					s.allow(l, key, 1)
				}
				if res := s.allow(l, key, 1); !res.Blocked {
					s.broken("after three refusals: %+v", res)
				}
				for range 3 {
					s.allow(l, key, 2)
				}
				if taker(s) {
					if res := s.upTo(l, key, 2); !res.Blocked || res.Charged != 0 {
						s.broken("as much as fits, while blocked: %+v", res)
					}
				}
				if once {
					again, err := l.AllowOnce(s.Context(), "id", key, 2)
					if err != nil || !again.Allowed || again.Blocked {
						s.broken("a call that is repeated while its key is blocked: %+v, %v", again, err)
					}
					if res, err := l.AllowOnce(s.Context(), "another", key, 2); err != nil || !res.Blocked {
						s.broken("another call while its key is blocked: %+v, %v", res, err)
					}
				}
			}
		},
	},
	{
		name:    "several subjects and a block",
		promise: "of several subjects those count that refuse, and one that is blocked refuses the call for all",
		run: func(s *suite) {
			power[driver.MultiStore](s)
			limits := []sash.Limit{sash.Every(2, window)}
			if calendar(s.algorithm) {
				limits = append(limits, sash.PerCalendar(50, sash.CalendarDay, nil))
			}
			l := s.blocker(sash.Block{Refusals: 2, Window: window, For: time.Minute}, limits...)
			a, b, c := sash.Subject{Key: "a", Cost: 1}, sash.Subject{Key: "b", Cost: 1}, sash.Subject{Key: "c", Cost: 1}
			s.fill(l, "b", 2)
			for i := range 2 {
				if res := s.together(l, a, b, c); res.Allowed || res.Blocked != (i == 1) {
					s.broken("refusal %d of 2: %+v", i+1, res)
				}
			}
			s.Advance(window)
			res := s.together(l, a, b)
			if by, _ := res.RefusedBy(); !res.Blocked || by.Key != "b" || res.RetryAfter != time.Minute-window {
				s.broken("a subject of two is blocked: %+v by %q", res, by.Key)
			}
			if res := s.together(l, a, c); !res.Allowed || res.Remaining != 1 {
				s.broken("the others: %+v", res)
			}
		},
	},
	{
		name:    "a block and a clock that goes back",
		promise: "after a clock that went back a block lasts no longer than its length",
		run: func(s *suite) {
			l := s.blocker(sash.Block{Refusals: 1, Window: window, For: time.Minute}, sash.Every(1, window))
			s.align(8 * window)
			s.fill(l, "k", 1)
			if res := s.allow(l, "k", 1); !res.Blocked {
				s.broken("%+v", res)
			}
			s.Advance(-time.Hour)
			if res := s.allow(l, "k", 1); !res.Blocked || res.RetryAfter != time.Minute {
				s.broken("blocked %v, retry after %v", res.Blocked, res.RetryAfter)
			}
			s.Advance(time.Minute)
			if res := s.peek(l, "k"); res.Blocked {
				s.broken("blocked for another %v", res.RetryAfter)
			}
		},
	},
})

// ofBlockers runs cases on stores that keep blocks. A limiter with a block on another store is an error.
func ofBlockers(cases []testCase) []testCase {
	for i := range cases {
		run := cases[i].run
		cases[i].run = func(s *suite) {
			if _, ok := driver.As[driver.Blocker](s.Store); ok {
				run(s)
				return
			}
			opts := s.options()
			opts.Block = sash.Block{For: time.Minute}
			if _, err := sash.New(s.Store, opts, sash.Every(1, window)); !errors.Is(err, sash.ErrUnsupported) {
				s.broken("a limiter with a block on a store that keeps none: %v", err)
			}
		}
	}
	return cases
}

// blocker returns a limiter with a block.
func (s *suite) blocker(b sash.Block, limits ...sash.Limit) *sash.Limiter {
	s.Helper()
	opts := s.options()
	opts.Block = b
	return s.limiterWith(opts, limits...)
}
