package storetest

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/judge"
)

// queueCases test what becomes of bookings, on stores that book.
var queueCases = []testCase{
	{
		name:    "a booking is given back",
		promise: "a booking that is given back makes room at its instant, and nobody moves; the last one leaves its place to the next",
		run: booking(func(s *bookSuite) {
			p := s.policy(sash.Every(4, window))
			s.book("k", p, 4, 0)
			first := s.book("k", p, 4, window)
			second := s.book("k", p, 4, 2*window)
			third := s.book("k", p, 3, 3*window)
			s.settled(p, 4, first, 0)
			s.settled(p, 3, third, 1)
			s.book("k", p, 3, 3*window)
			s.book("k", p, 1, 4*window)
			s.Advance(window)
			if res := s.ask("k", p, 4, 0); !res.Allowed() {
				s.broken("the units of the booking that was given back: %+v", res)
			}
			s.settled(p, 4, second, 6)
			if left := s.left("k", p); left != 0 {
				s.broken("10 units of 4 are in use when the booking starts, and %d remain", left)
			}
		}),
	},
	{
		name:    "the end of the queue moves up",
		promise: "when the last bookings are given back, the next one takes their place",
		run: booking(func(s *bookSuite) {
			p := s.policy(sash.Every(1, window))
			var all []driver.Answer
			for i := range 6 {
				all = append(all, s.book("k", p, 1, time.Duration(i)*window))
			}
			for _, i := range []int{3, 2, 5, 4} { // 5 is the last, then 4, and 2 and 3 are gaps
				s.settled(p, 1, all[i], 0)
			}
			s.book("k", p, 1, 2*window)
			s.settled(p, 1, all[0], 0)
			if res := s.ask("k", p, 1, 0); !res.Allowed() {
				s.broken("nothing is in use before the first booking: %+v", res)
			}
		}),
	},
	{
		name:    "a reset forgets bookings",
		promise: "after a reset no booking is ahead, and settling one from before it changes nothing",
		run: booking(func(s *bookSuite) {
			store := power[driver.Resetter](s.suite)
			p := s.policy(sash.Every(1, window))
			s.book("k", p, 1, 0)
			s.book("k", p, 1, window)
			before := s.book("k", p, 1, 2*window)
			if err := store.Reset(s.Context(), "k", p); err != nil {
				s.Fatal(err)
			}
			s.Advance(window)
			s.book("k", p, 1, 0)
			s.book("k", p, 1, window)
			s.settled(p, 1, before, 0) // of the same instant
			s.book("k", p, 1, 2*window)
			s.settled(p, 1, before, 5)
			s.book("k", p, 1, 3*window)
		}),
	},
	{
		name:    "a clock that goes back moves bookings with it",
		promise: "when the clock goes back to well before the last charge, bookings move back as far, and none is forgotten",
		run: booking(func(s *bookSuite) {
			p := s.policy(sash.Every(2, window))
			s.book("k", p, 2, 0)
			s.Advance(time.Second)
			first := s.book("k", p, 2, window-time.Second)
			second := s.book("k", p, 2, 2*window-time.Second)
			s.Advance(-3 * time.Second)
			if res := s.ask("k", p, 1, 0); res.Allowed() || res.Retry() != (3*window-time.Second).Microseconds() {
				s.broken("three seconds back, behind bookings in 9 and 19 s: %+v", res)
			}
			s.book("k", p, 1, 3*window-time.Second)
			s.settled(p, 2, first, 0)
			s.settled(p, 2, second, 0)
			s.book("k", p, 2, 4*window-time.Second) // nothing was given back of the booking that is there now
		}),
	},
	{
		name:    "a clock that goes back by a millisecond moves no booking",
		promise: "when the clock goes back to at most a millisecond before the last charge, bookings keep their places",
		run: booking(func(s *bookSuite) {
			p := s.policy(sash.Every(2, window))
			s.book("k", p, 2, 0)
			s.Advance(time.Second)
			s.book("k", p, 2, window-time.Second)
			for range 3 {
				s.Advance(-time.Millisecond)
				s.ask("k", p, 0, 0)
				s.Advance(time.Millisecond)
				s.ask("k", p, 0, 0)
			}
			s.Advance(-time.Millisecond)
			s.book("k", p, 2, 2*window-time.Second+time.Millisecond)
		}),
	},
	{
		name:    "a clock between the last charge and a booking",
		promise: "a clock that goes back over the start of a booking, and not to before the last charge, leaves it",
		run: booking(func(s *bookSuite) {
			p := s.policy(sash.Every(2, window))
			s.book("k", p, 2, 0)
			s.book("k", p, 2, window)
			s.Advance(window + time.Second)
			s.ask("k", p, 0, 0)
			s.Advance(-2 * time.Second)
			if res := s.ask("k", p, 1, 0); res.Allowed() || res.Retry() != (window+time.Second).Microseconds() {
				s.broken("a second before the booking: %+v", res)
			}
		}),
	},
	{
		name:    "a large booking does not starve",
		promise: "a booking of half the units starts in its turn, among thousands of one unit and calls that do not wait",
		run: booking(func(s *bookSuite) {
			limit := sash.Every(100, window)
			p := s.policy(limit)
			var history []judge.Call
			admit := func(cost int64, within time.Duration) driver.Answer {
				res := s.ask("k", p, cost, within)
				if res.Allowed() {
					history = append(history, judge.Call{At: time.UnixMicro(res.At), Cost: cost})
				}
				return res
			}
			for range 1050 {
				admit(1, farthest)
			}
			large := admit(50, farthest)
			if large.Delay != 10*window.Microseconds() {
				s.broken("50 of 100 units behind 1050 of one: %+v", large)
			}
			for i := range 1000 {
				if res := admit(1, farthest); res.At < large.At {
					s.broken("call %d of one unit behind it: %+v", i, res)
				}
			}
			for s.Now().UnixMicro() < large.At {
				admit(1, 0)
				s.Advance(window / 20)
			}
			if res := s.ask("k", p, 1, 0); res.Allowed() {
				s.broken("all units are in use when it starts: %+v", res)
			}
			if err := judge.CheckHistory([]sash.Limit{limit}, history); err != nil {
				s.broken("%v", err)
			}
		}),
	},
	{
		name:    "several calls in one",
		promise: "several requests of a subject in one call are decided one after the other, as each would be",
		run: booking(func(s *bookSuite) {
			store := power[driver.Batcher](s.suite)
			p := s.policy(sash.Every(5, window), sash.Every(8, 3*window))
			rng := rand.New(rand.NewPCG(3, 4))
			for range 20 {
				var reqs []driver.Request
				for range 1 + rng.IntN(8) {
					reqs = append(reqs, s.request("together", p, rng.Int64N(5), time.Duration(rng.IntN(2)*rng.IntN(200))*time.Second))
				}
				answers, err := store.DecideEach(s.Context(), reqs)
				if err != nil || len(answers) != len(reqs) {
					s.Fatalf("DecideEach: %d answers, %v", len(answers), err)
				}
				for i, req := range reqs {
					req.Key = "alone"
					alone := s.decide(req)
					got := answers[i]
					if got.At != alone.At || got.Delay != alone.Delay || got.Refusals != alone.Refusals || !slices.Equal(got.Statuses(), alone.Statuses()) {
						s.broken("request %d of %d, cost %d within %d: %+v, alone %+v", i, len(reqs), req.Cost, req.Within, got, alone)
					}
				}
				s.Advance(time.Duration(rng.IntN(30_000)) * time.Millisecond)
			}
		}),
	},
	{
		name:    "bookings keep the bound and their order",
		promise: "no window that ends at any instant holds more than a limit, bookings start in the order of their decisions, and those given back make room for others only",
		run: booking(func(s *bookSuite) {
			limits := []sash.Limit{sash.Every(20, window), sash.Every(50, 4*window)}
			p := s.policy(limits...)
			rng := rand.New(rand.NewPCG(5, 6))
			var history []judge.Call
			var answers []driver.Answer
			var open []int // bookings that have not started
			queue := int64(0)
			for step := range 600 {
				s.Advance(time.Duration(rng.IntN(2_500_000)) * time.Microsecond)
				now := s.Now().UnixMicro()
				open = slices.DeleteFunc(open, func(i int) bool { return history[i].At.UnixMicro() <= now })
				if len(open) > 0 && rng.IntN(5) == 0 {
					i := open[rng.IntN(len(open))]
					s.settled(p, history[i].Cost, answers[i], 0)
					history[i].Cost = 0
					open = slices.DeleteFunc(open, func(j int) bool { return history[j].Cost == 0 })
					queue = now
					for _, j := range open {
						queue = max(queue, history[j].At.UnixMicro())
					}
					continue
				}
				within := time.Duration(rng.IntN(2)*rng.IntN(6)) * window
				cost := 1 + rng.Int64N(8)
				res := s.ask("k", p, cost, within)
				if !res.Allowed() {
					continue
				}
				if within > 0 && res.At < queue {
					s.broken("step %d: booked for %d, and one before for %d", step, res.At, queue)
				}
				history, answers = append(history, judge.Call{At: time.UnixMicro(res.At), Cost: cost}), append(answers, res)
				if res.Delay > 0 {
					open, queue = append(open, len(history)-1), res.At
				}
				if err := judge.CheckHistory(limits, history); err != nil {
					s.broken("step %d: %v", step, err)
				}
			}
		}),
	},
	{
		name:    "concurrent bookings",
		promise: "concurrent bookings fill every window, and no more",
		run: booking(func(s *bookSuite) {
			p := s.policy(sash.Every(5, window))
			var mu sync.Mutex
			starts := make(map[int64]int)
			var group sync.WaitGroup
			for range 10 {
				group.Go(func() {
					for range 5 {
						res, err := s.Store.Decide(context.Background(), s.request("k", p, 1, time.Hour))
						if err != nil || !res.Allowed() {
							s.Errorf("%+v, %v", res, err)
							return
						}
						mu.Lock()
						starts[res.Delay]++
						mu.Unlock()
					}
				})
			}
			group.Wait()
			for i := range int64(10) {
				if n := starts[i*window.Microseconds()]; n != 5 {
					s.broken("%d bookings start in %d windows, want 5: %v", n, i, starts)
				}
			}
		}),
	},
}
