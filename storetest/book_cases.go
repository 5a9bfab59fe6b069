package storetest

import (
	"fmt"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
)

// bookCases test calls that are booked, on stores that book.
var bookCases = []testCase{
	{
		name:    "a booking starts when there is room",
		promise: "a booking starts at the first microsecond at which it fits, and what remains is as of then, with times from now",
		run: booking(func(s *bookSuite) {
			p := s.policy(sash.Every(3, window))
			s.book("k", p, 2, 0)
			s.Advance(time.Second)
			s.book("k", p, 1, 0)
			b := s.book("k", p, 2, window-time.Second)
			l := b.Statuses()[0]
			if l.Remaining != 0 || l.Retry != 0 || l.Release != window.Microseconds() || l.Reset != (2*window-time.Second).Microseconds() {
				s.broken("3 of 3 are in use when it starts, in 9 s, one of them for another second: %+v", l)
			}
			s.book("k", p, 1, window)
			s.book("k", p, 3, 2*window)
		}),
	},
	{
		name:    "bookings start in order",
		promise: "a booking goes behind every booking before it, also one that would fit earlier",
		run: booking(func(s *bookSuite) {
			p := s.policy(sash.Every(10, window))
			s.book("k", p, 6, 0)
			s.book("k", p, 5, window)
			s.book("k", p, 1, window)
			s.book("k", p, 4, window)
			s.book("k", p, 1, 2*window)
		}),
	},
	{
		name:    "a booking is not farther away than it may be",
		promise: "what cannot start within its time is refused, and charges nothing; its retry time is the time until it could",
		run: booking(func(s *bookSuite) {
			p := s.policy(sash.Every(5, window), sash.Every(100, 2*window))
			s.book("k", p, 5, 0)
			s.Advance(time.Second)
			for range 2 {
				res := s.ask("k", p, 2, window-time.Second-time.Microsecond)
				if res.Refusals != 1 || res.Retry() != (window-time.Second).Microseconds() || res.Remaining() != 0 || res.Delay != 0 {
					s.broken("room is 9 s away, one microsecond too far: %+v", res)
				}
			}
			s.book("k", p, 5, window-time.Second)
			s.book("k", p, 5, 2*window-time.Second)
		}),
	},
	{
		name:    "a call goes ahead of bookings that it does not delay",
		promise: "a call that is not booked is admitted if no window that ends at a booking then exceeds its own limits; otherwise it is refused for the time until it fits behind them, not firmly",
		run: booking(func(s *bookSuite) {
			jobs, all := s.policy(sash.Every(8, window)), s.policy(sash.Every(10, window))
			s.book("k", jobs, 8, 0)
			s.book("k", jobs, 8, window)
			s.Advance(window / 2)
			if left := s.left("k", all); left != 2 {
				s.broken("8 of 10 are in use, now and when the booking starts, and %d remain", left)
			}
			for range 2 {
				if res := s.ask("k", all, 1, 0); !res.Allowed() || res.Delay != 0 {
					s.broken("a call that fits beside the bookings was refused: %+v", res)
				}
			}
			res := s.ask("k", all, 1, 0)
			if res.Allowed() || res.Firm || res.Retry() != window.Microseconds() { // the two leave then
				s.broken("a call would make it 11 of 10 when the booking starts: %+v", res)
			}
			s.Advance(window)
			if res := s.ask("k", all, 2, 0); !res.Allowed() {
				s.broken("refused after its retry time: %+v", res)
			}
			small := s.policy(sash.Every(1, time.Second))
			s.book("other", jobs, 8, 0)
			s.book("other", jobs, 8, window)
			s.Advance(time.Second)
			if res := s.ask("other", small, 1, 0); !res.Allowed() {
				s.broken("a call whose short window ends long before the booking starts was refused: %+v", res)
			}
		}),
	},
	{
		name:    "refusals are not firm while bookings lie ahead",
		promise: "a refusal is firm only if its retry time is exact, and while bookings lie ahead it is an upper bound",
		run: booking(func(s *bookSuite) {
			p := s.policy(sash.Every(2, window))
			refused := func(within time.Duration) driver.Answer {
				req := s.request("k", p, 1, within)
				req.MaySettle = false
				for {
					res := s.decide(req)
					if !res.Allowed() {
						return res
					}
				}
			}
			refused(0)
			for _, within := range []time.Duration{window, 0, time.Second} {
				if res := refused(within); res.Firm {
					s.broken("a refusal within %v is firm: %+v", within, res)
				}
			}
		}),
	},
	{
		name:    "bookings under several limits",
		promise: "a booking starts when every limit has room, those of the calendar, too",
		run: booking(func(s *bookSuite) {
			zone, err := time.LoadLocation("America/Los_Angeles")
			if err != nil {
				s.Fatal(err)
			}
			p := s.policy(sash.Every(3, window), sash.PerCalendar(6, sash.CalendarDay, zone))
			evening := time.Date(2030, 3, 9, 23, 59, 30, 0, zone)
			s.Advance(evening.Sub(s.Now()))
			s.book("k", p, 2, 0)
			s.book("k", p, 3, window)
			s.book("k", p, 2, 30*time.Second)
			s.book("k", p, 1, 30*time.Second)
			s.book("k", p, 3, 30*time.Second+window)
			s.book("k", p, 1, 30*time.Second+23*time.Hour) // a day of 23 hours
			if res := s.ask("k", p, 1, 23*time.Hour); res.Allowed() || res.Retry() != (30*time.Second+23*time.Hour).Microseconds() {
				s.broken("a booking goes behind one on the next day: %+v", res)
			}
		}),
	},
	{
		name:    "several subjects are booked for one instant",
		promise: "a booking over several subjects starts when all have room behind the bookings of each, or charges none",
		run: booking(func(s *bookSuite) {
			store := power[driver.MultiStore](s.suite)
			p := s.policy(sash.Every(2, window))
			s.book("{t}a", p, 2, 0)
			s.Advance(time.Second)
			s.book("{t}b", p, 2, 0)
			s.book("{t}b", p, 1, window)
			reqs := []driver.Request{s.request("{t}a", p, 1, time.Hour), s.request("{t}b", p, 2, time.Hour), s.request("{t}c", p, 1, time.Hour)}
			for i := range reqs {
				reqs[i].Within = (2*window - time.Microsecond).Microseconds()
			}
			answers, err := store.DecideAll(s.Context(), reqs)
			if err != nil {
				s.Fatal(err)
			}
			for i, want := range []int64{0, 2 * window.Microseconds(), 0} {
				if res := answers[i]; res.Delay != 0 || res.Retry() != want || res.Allowed() != (want == 0) {
					s.broken("the second subject has room in 20 s, a microsecond too far: %+v", answers)
				}
			}
			for i := range reqs {
				reqs[i].Within++
			}
			if answers, err = store.DecideAll(s.Context(), reqs); err != nil {
				s.Fatal(err)
			}
			for i, left := range []int64{1, 0, 1} {
				res := answers[i]
				if !res.Allowed() || res.Delay != 2*window.Microseconds() || res.At != s.Now().Add(2*window).UnixMicro() || res.Remaining() != left {
					s.broken("the second subject has room in 20 s: %+v", answers)
				}
			}
			s.book("{t}a", p, 1, 2*window)
			s.book("{t}a", p, 1, 3*window)
			res, err := store.DecideAll(s.Context(), []driver.Request{s.request("{t}a", p, 2, 0), s.request("{t}d", p, 2, 0)})
			if err != nil || res[0].Allowed() || res[0].Retry() != 4*window.Microseconds() || !res[1].Allowed() {
				s.broken("two units of the first subject, of which one is booked in 30 s: %+v, %v", res, err)
			}
		}),
	},
	{
		name:    "a booking is repeated with its ID",
		promise: "a booking that is repeated with its ID keeps its place and charges nothing, until RepeatTime after it has started",
		run: booking(func(s *bookSuite) {
			store := power[driver.Deduplicator](s.suite)
			p := s.policy(sash.Every(1, window))
			once := func() driver.Answer {
				res, err := store.DecideOnce(s.Context(), "id", s.request("k", p, 1, time.Hour))
				if err != nil {
					s.Fatal(err)
				}
				return res
			}
			s.book("k", p, 1, 0)
			first := once()
			s.book("k", p, 1, 2*window)
			for _, d := range []time.Duration{0, time.Second, window - time.Second, time.Minute, driver.RepeatTime - time.Minute - time.Microsecond} {
				s.Advance(d)
				want := max(0, first.At-s.Now().UnixMicro())
				if res := once(); !res.Allowed() || res.At != first.At || res.Delay != want {
					s.broken("booked for %d, and repeated at %v it is %+v", first.At, s.Now().UnixMicro(), res)
				}
			}
			s.Advance(2 * time.Second)
			if res := once(); res.At != s.Now().UnixMicro() || res.Delay != 0 {
				s.broken("after RepeatTime: %+v", res)
			}
		}),
	},
	{
		name:    "what a store does not book",
		promise: "under a policy that a store does not book under, a request that may be booked is decided as one that may not",
		run: func(s *suite) {
			booker := power[driver.Booker](s)
			opts := s.options()
			opts.CountRefused = true
			for i, opts := range []*sash.Options{s.options(), opts} {
				p, err := sash.NewPolicy(opts, sash.Every(2, window))
				if err != nil {
					s.Fatal(err)
				}
				if booker.Books(p) {
					if !p.Bookable() {
						s.broken("it books under %v, CountRefused %v", p.Algorithm, p.CountRefused)
					}
					continue
				}
				b := &bookSuite{s}
				key := fmt.Sprint("k", i)
				b.book(key, p, 2, 0)
				if res := b.ask(key, p, 1, time.Hour); res.Allowed() || res.Delay != 0 || res.Retry() <= 0 {
					s.broken("a request without room: %+v", res)
				}
			}
		},
	},
}
