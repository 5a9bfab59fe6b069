package storetest

import (
	"fmt"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
)

// anyCases test decisions on whichever of several subjects has most room.
var anyCases = []testCase{
	{
		name:    "any: most room",
		promise: "of several subjects the one with most room is charged, by the share of its tightest limit, and no other",
		run: func(s *suite) {
			power[driver.Chooser](s)
			l := s.limiter(sash.Every(10, window))
			half := sash.Subject{Key: "half", Cost: 2}
			most := sash.Subject{Key: "most", Cost: 2, Limits: []sash.Limit{sash.Every(5, window)}}
			tight := sash.Subject{Key: "tight", Cost: 2, Limits: []sash.Limit{sash.Every(3, window), sash.Every(1000, 2*window)}}
			s.fill(l, "half", 5) // (10 - 5 - 2) / 10 would be left, of "most" 3 / 5, of "tight" 1 / 3
			chosen, res := s.any(l, half, tight, most)
			if chosen != 2 || !res.Allowed || res.Remaining != 3 || res.Limits()[0].Key != "most" {
				s.broken("subject %d was chosen: allowed %v, %d remain", chosen, res.Allowed, res.Remaining)
			}
			if a, b := s.peek(l, "half").Remaining, s.peek(l, "tight").Remaining; a != 5 || b != 10 {
				s.broken("another subject was charged: %d and %d remain, want 5 and 10", a, b)
			}
		},
	},
	{
		name:    "any: the pool is used evenly",
		promise: "calls on subjects with equal limits are spread over them, and refused only when all are full",
		run: func(s *suite) {
			power[driver.Chooser](s)
			l := s.limiter(sash.Every(3, window))
			pool := poolOf(2*driver.ChoiceGroup + 1)
			small := pool[:5]
			for round := range int64(3) {
				used := map[int]bool{}
				for range small {
					chosen, res := s.any(l, small...)
					if used[chosen] || !res.Allowed || res.Remaining != 2-round {
						s.broken("round %d: subject %d was chosen, again %v, allowed %v with %d left", round, chosen, used[chosen], res.Allowed, res.Remaining)
					}
					used[chosen] = true
				}
			}
			if _, res := s.any(l, small...); res.Allowed {
				s.broken("admitted by a subject without room")
			}
			for range 3 * (len(pool) - len(small)) {
				if chosen, res := s.any(l, pool...); !res.Allowed || chosen < len(small) {
					s.broken("subject %d was chosen although others have room: allowed %v", chosen, res.Allowed)
				}
			}
			if _, res := s.any(l, pool...); res.Allowed || res.RetryAfter <= 0 {
				s.broken("all are full: allowed %v, retry after %v", res.Allowed, res.RetryAfter)
			}
		},
	},
	{
		name:    "any: the shortest wait",
		promise: "a refusal is that of the subject with the shortest RetryAfter, charges nothing, and the call is admitted then and not before",
		only:    exact,
		run: func(s *suite) {
			power[driver.Chooser](s)
			l := s.limiter(sash.Every(2, window))
			pool := poolOf(driver.ChoiceGroup + 3)
			for i := range pool { // the last but one is free first
				s.Advance(resolution)
				s.fill(l, pool[(i+len(pool)-2)%len(pool)].Key, 2)
			}
			chosen, res := s.any(l, pool...)
			if res.Allowed || chosen != len(pool)-2 || res.Limits()[0].Key != pool[chosen].Key {
				s.broken("subject %d refuses: allowed %v", chosen, res.Allowed)
			}
			s.Advance(res.RetryAfter - 1000)
			if chosen, early := s.any(l, pool...); early.Allowed {
				s.broken("admitted by %d a microsecond before RetryAfter", chosen)
			}
			s.Advance(1000)
			if chosen, res := s.any(l, pool...); !res.Allowed || chosen != len(pool)-2 {
				s.broken("after RetryAfter: allowed %v by subject %d", res.Allowed, chosen)
			}
		},
	},
	{
		name:    "any: the shortest queue",
		promise: "a call that may be booked goes to the subject that is free first, behind all bookings of it, and takes no room in front of one",
		run: func(s *suite) {
			power[driver.Chooser](s)
			l := s.limiter(sash.Every(10, window))
			if !driver.CanBook(s.Store, l.Policy()) {
				return
			}
			book := func(within time.Duration, subjects ...sash.Subject) (int, *sash.Reservation) {
				chosen, r, err := l.BookAny(s.Context(), within, subjects...)
				if err != nil {
					s.Fatalf("BookAny: %v", err)
				}
				return chosen, r
			}
			a, b := sash.Subject{Key: "a", Cost: 1}, sash.Subject{Key: "b", Cost: 1}
			large := sash.Subject{Key: "a", Cost: 5}
			s.fill(l, "a", 8)
			s.Advance(resolution)
			s.fill(l, "b", 3)
			if _, r := book(window, large); r.Result().Delay != window-resolution {
				s.broken("5 of 10 start %v after 8 of them were charged, want %v", r.Result().Delay, window-resolution)
			}
			if chosen, r := book(window, a, b); chosen != 1 || r.Result().Delay != 0 {
				s.broken("subject %d after %v, although the other one has no queue", chosen, r.Result().Delay)
			}
			if _, r := book(window, a); r.Result().Delay < window-resolution {
				s.broken("a call that came later starts %v before the one that waits", window-resolution-r.Result().Delay)
			}
			s.fill(l, "b", 6)
			for i := range 8 { // 4 have room behind the queue of "a", and then both are full until those of "b" leave
				chosen, r := book(window, a, b)
				if want := i / 4; chosen != want || !r.Allowed() {
					s.broken("call %d: subject %d after %v, allowed %v", i, chosen, r.Result().Delay, r.Allowed())
				}
			}
			if _, r := book(time.Second, a, b); r.Allowed() || r.Result().RetryAfter <= time.Second {
				s.broken("booked within a second: %v, and the retry time is %v", r.Allowed(), r.Result().RetryAfter)
			}
		},
	},
}

func poolOf(n int) []sash.Subject {
	pool := make([]sash.Subject, n)
	for i := range pool {
		pool[i] = sash.Subject{Key: fmt.Sprintf("credential:%d", i), Cost: 1}
	}
	return pool
}

// any decides on whichever of several subjects has most room.
func (s *suite) any(l *sash.Limiter, subjects ...sash.Subject) (int, sash.Result) {
	s.Helper()
	chosen, res, err := l.AllowAny(s.Context(), subjects...)
	if err != nil {
		s.Fatalf("AllowAny: %v", err)
	}
	return chosen, res
}
