package storetest

import (
	"time"

	"example.com/sash"
	"example.com/sash/driver"
)

// subjectCases test keys, and decisions over several of them.
var subjectCases = []testCase{
	{
		name:    "subjects are apart",
		promise: "the charges of one subject take nothing from another, nor from the same key under another algorithm",
		run: func(s *suite) {
			l := s.limiter(sash.Every(1, window))
			s.fill(l, "a", 1)
			s.fill(l, "b", 1)
			for _, a := range s.algorithms {
				opts := &sash.Options{Algorithm: a}
				if a == sash.SlidingBuckets {
					opts.Resolution = resolution
				}
				if a != s.algorithm {
					s.fill(s.limiterWith(opts, sash.Every(1, window)), "a", 1)
				}
			}
		},
	},
	{
		name:    "several subjects, all or nothing",
		promise: "several subjects are charged if all have room, and otherwise none of them",
		run: func(s *suite) {
			power[driver.MultiStore](s)
			l := s.limiter(sash.Every(5, window))
			s.fill(l, "b", 4)
			a, b := sash.Subject{Key: "a", Cost: 2}, sash.Subject{Key: "b", Cost: 2}
			res := s.together(l, a, b)
			by, _ := res.RefusedBy()
			if res.Allowed || by.Key != "b" || res.RetryAfter <= 0 {
				s.broken("allowed %v, refused by %q", res.Allowed, by.Key)
			}
			s.remain(l, "a", 5, "the subject that had room was not to be charged")
			b.Cost = 1
			if res := s.together(l, a, b); !res.Allowed || res.Remaining != 0 {
				s.broken("with room for both: allowed %v, %d remain", res.Allowed, res.Remaining)
			}
			s.remain(l, "a", 3, "the first subject is charged 2 of 5")
		},
	},
	{
		name:    "each subject has its own limits",
		promise: "a narrow limit on top of a shared quota: each subject is held to its own limits",
		run: func(s *suite) {
			power[driver.MultiStore](s)
			l := s.limiter(sash.Every(100, window))
			shared := sash.Subject{Key: "quota", Cost: 10}
			narrow := sash.Subject{Key: "search", Cost: 1, Limits: []sash.Limit{sash.Every(2, window), sash.Every(3, 2*window)}}
			for range 2 {
				if res := s.together(l, shared, narrow); !res.Allowed || len(res.Limits()) != 3 {
					s.broken("allowed %v with %d limits", res.Allowed, len(res.Limits()))
				}
			}
			res := s.together(l, shared, narrow)
			if by, _ := res.RefusedBy(); res.Allowed || by.Key != "search" || by.Limit.Units != 2 {
				s.broken("allowed %v, refused by %q %v", res.Allowed, by.Key, by.Limit)
			}
			s.remain(l, "quota", 80, "of the shared quota")
		},
	},
	{
		name:    "the wait is for all subjects",
		promise: "RetryAfter of a decision over several subjects is the time until all of them have room",
		only:    exact,
		run: func(s *suite) {
			power[driver.MultiStore](s)
			for _, count := range []bool{false, true} {
				opts := s.options()
				opts.CountRefused = count
				l := s.limiterWith(opts, sash.Every(1, time.Second))
				key := map[bool]string{false: "a", true: "b"}[count]
				subjects := []sash.Subject{{Key: key + "1", Cost: 1}, {Key: key + "2", Cost: 1, Limits: []sash.Limit{sash.Every(1, window)}}}
				s.fill(l, subjects[0].Key, 1)
				res := s.together(l, subjects...)
				s.Advance(res.RetryAfter)
				if again := s.together(l, subjects...); !again.Allowed {
					s.broken("refused after RetryAfter %v, for another %v (CountRefused %v)", res.RetryAfter, again.RetryAfter, count)
				}
			}
		},
	},
	{
		name:    "a subject can be forgotten",
		promise: "Reset removes every charge of a subject, and of no other",
		run: func(s *suite) {
			power[driver.Resetter](s)
			l := s.limiter(sash.Every(5, window), sash.Every(7, 2*window))
			s.fill(l, "a", 5)
			s.fill(l, "b", 5)
			s.reset(l, "a")
			if a, b := s.peek(l, "a").Remaining, s.peek(l, "b").Remaining; a != 5 || b != 0 {
				s.broken("%d and %d of 5 remain, want 5 and 0", a, b)
			}
			s.fill(l, "a", 5)
		},
	},
}
