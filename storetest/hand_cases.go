package storetest

import (
	"math/rand/v2"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/judge"
)

// handCases test slots that are handed over in turn, on stores that support it.
var handCases = []testCase{
	{
		name:    "a slot is handed over",
		promise: "a charge is given back and another is made in one step; one that is gone gives nothing back",
		only:    exact,
		run: func(s *suite) {
			s.handing(2, func(store driver.Hander, req driver.Request) {
				line := driver.Line{Name: 1, Most: 1, Stays: 1e6}
				first := s.hand(store, req, line)
				s.Advance(time.Second)
				second := s.hand(store, req, line)
				s.Advance(time.Second)
				if full := s.hand(store, req, driver.Line{Name: 2, Most: 1, Stays: 1}); full.Allowed() {
					s.broken("a third slot of 2 was taken")
				}
				line.Back = first.At
				s.Advance(time.Second)
				if over := s.hand(store, req, line); !over.Allowed() || over.Statuses()[0].Remaining != 0 {
					s.broken("handing a slot over: %+v", over)
				}
				s.Advance(time.Second)
				if again := s.hand(store, req, line); again.Allowed() {
					s.broken("a slot was handed over that was given back before")
				}
				line.Back = second.At
				if over := s.hand(store, req, line); !over.Allowed() {
					s.broken("the other slot cannot be handed over: %+v", over)
				}
			})
		},
	},
	{
		name:    "lines take turns",
		promise: "others are admitted past the first line of the rota so many times, and not once more",
		only:    exact,
		run: func(s *suite) {
			s.handing(3, func(store driver.Hander, req driver.Request) {
				random := rand.New(rand.NewPCG(3, 4))
				var rota judge.Rota
				var held []int64
				for step := range 2000 {
					s.Advance(time.Duration(1+random.IntN(200_000)) * time.Microsecond)
					line := driver.Line{
						Name: 1 + random.Uint64N(4), Most: 1 + random.Int64N(3), Stays: 1 + random.Int64N(1e6), More: random.IntN(2) == 0,
					}
					now := s.Now().UnixMicro()
					if len(held) > 0 && held[0] <= now-window.Microseconds() {
						held = held[1:]
					}
					if i := random.IntN(4); i < len(held) {
						line.Back = held[i]
						held = append(held[:i:i], held[i+1:]...)
					}
					turn, admitted := rota.Ask(now, line, len(held) < 3)
					answer := s.hand(store, req, line)
					if answer.Allowed() != admitted {
						s.broken("step %d: allowed %v, want %v: %d of 3 held, its turn %v", step, answer.Allowed(), admitted, len(held), turn)
					}
					if !turn && (answer.Retry() != line.Stays || answer.Firm) {
						s.broken("step %d: a line whose turn it is not got %+v", step, answer)
					}
					if admitted {
						held = append(held, answer.At)
					}
					if left := answer.Statuses()[0].Remaining; left != int64(3-len(held)) {
						s.broken("step %d: %d of 3 remain while %d are held", step, left, len(held))
					}
				}
			})
		},
	},
	{
		name:    "lines of other limits",
		promise: "a line that waits under a limit of fewer units keeps no slot from those of a limit of more",
		only:    exact,
		run: func(s *suite) {
			s.handing(1, func(store driver.Hander, fewer driver.Request) {
				s.handing(3, func(store driver.Hander, more driver.Request) {
					held := s.hand(store, more, driver.Line{Name: 2, Most: 1, Stays: 1})
					for i := range 5 {
						s.Advance(time.Millisecond)
						if small := s.hand(store, fewer, driver.Line{Name: 1, Most: 1, Stays: driver.MaxStay}); small.Allowed() {
							s.broken("a second slot of 1 was taken")
						}
						s.Advance(time.Millisecond)
						held = s.hand(store, more, driver.Line{Name: 2, Most: 1, Stays: 1, Back: held.At})
						if !held.Allowed() {
							s.broken("call %d: a slot was kept for a line that must not take it: %+v", i, held)
						}
					}
				})
			})
		},
	},
	{
		name:    "a rota is bounded",
		promise: "so many lines take turns; further ones get slots that are free and take none",
		only:    exact,
		run: func(s *suite) {
			s.handing(1, func(store driver.Hander, req driver.Request) {
				held := s.hand(store, req, driver.Line{Name: 1000, Most: 1, Stays: 1})
				for name := range uint64(driver.MaxLines + 1) {
					s.hand(store, req, driver.Line{Name: 1 + name, Most: 1, Stays: driver.MaxStay})
				}
				last := driver.Line{Name: driver.MaxLines + 1, Most: 1, Stays: driver.MaxStay, Back: held.At}
				for name := range uint64(driver.MaxLines) {
					s.Advance(time.Millisecond)
					passes := s.hand(store, req, last)
					if !passes.Allowed() {
						s.broken("a slot was refused although the first line was not passed over before: %+v", passes)
					}
					s.Advance(time.Millisecond)
					last.Back = passes.At
					if turned := s.hand(store, req, last); turned.Allowed() {
						s.broken("a slot was taken twice past line %d", name+1)
					}
					last.Back = s.hand(store, req, driver.Line{Name: 1 + name, Most: 1, Stays: 1}).At
				}
			})
		},
	},
	{
		name:    "a rota and a clock that goes back",
		promise: "after a clock that went back no line keeps its place for longer than it may",
		only:    exact,
		run: func(s *suite) {
			s.handing(2, func(store driver.Hander, req driver.Request) {
				for range 3 {
					s.hand(store, req, driver.Line{Name: 1, Most: 1, Stays: driver.MaxStay, More: true})
				}
				s.Advance(-time.Hour)
				for i := range 3 {
					at := s.hand(store, req, driver.Line{Name: 2, Most: 1, Stays: 1}).At
					s.Advance(window)
					if free := s.hand(store, req, driver.Line{Name: 2, Most: 1, Stays: 1, Back: at}); !free.Allowed() {
						s.broken("call %d: a line from before the clock went back keeps others out: %+v", i, free)
					}
					s.Advance(window)
				}
			})
		},
	},
}

// handing calls f with a store that hands over, and a request for one of n slots.
func (s *suite) handing(n int64, f func(driver.Hander, driver.Request)) {
	s.Helper()
	store := power[driver.Hander](s)
	policy := s.policy(sash.Every(n, window))
	f(store, driver.Request{Key: "slots", Cost: 1, Policy: policy, MaySettle: true})
}

func (s *suite) hand(store driver.Hander, req driver.Request, line driver.Line) driver.Answer {
	s.Helper()
	answer, err := store.Hand(s.Context(), req, line)
	if err == nil {
		err = answer.Check(req.Policy)
	}
	if err != nil {
		s.Fatal(err)
	}
	return answer
}
