package storetest

import (
	"errors"
	"math/rand/v2"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
)

func extends(a sash.Algorithm) bool { return a.Extends() }

// extendCases test charges that begin anew, on stores that support it.
var extendCases = []testCase{
	{
		name:    "a charge can be extended",
		promise: "a charge that is extended takes no more room now, and stays a window longer; others leave as they would have",
		only:    extends,
		run: func(s *suite) {
			s.extending(func(store driver.Extender, l *sash.Limiter, set driver.Settlement) {
				s.Advance(window / 2)
				now := s.Now()
				at := s.extend(store, set)
				if at != now.UnixMicro() {
					s.broken("the charge counts from %d on, at %d", at, now.UnixMicro())
				}
				s.remain(l, "k", 1, "after it was extended; 9 of 10 are in use")
				s.Advance(window - time.Microsecond)
				s.remain(l, "k", 6, "only the 4 units that were extended count")
				s.Advance(time.Microsecond)
				s.remain(l, "k", 10, "after all have left")
			})
		},
	},
	{
		name:    "an extended charge can be given back",
		promise: "an extended charge is settled by its new instant",
		only:    extends,
		run: func(s *suite) {
			s.extending(func(store driver.Extender, l *sash.Limiter, set driver.Settlement) {
				settler := power[driver.Settler](s)
				s.Advance(window / 2)
				set.At = s.extend(store, set)
				s.Advance(window / 4)
				set.At = s.extend(store, set)
				s.settle(settler, set)
				s.remain(l, "k", 5, "5 are in use")
			})
		},
	},
	{
		name:    "a charge that is gone cannot be extended",
		promise: "a charge that has left its window, was removed by a reset or never was is not extended, and nothing is charged",
		only:    extends,
		run: func(s *suite) {
			s.extending(func(store driver.Extender, l *sash.Limiter, set driver.Settlement) {
				never := set
				never.At -= (window / 4).Microseconds()
				s.gone(store, l, never, "never was", 1)
				s.Advance(window)
				s.gone(store, l, set, "has left", 10)
				s.fill(l, "k", 2)
				s.gone(store, l, set, "has left, and others were made", 8)
			})
			s.extending(func(store driver.Extender, l *sash.Limiter, set driver.Settlement) {
				if _, ok := s.Store.(driver.Resetter); !ok {
					return
				}
				s.reset(l, "k")
				s.gone(store, l, set, "was reset", 10)
				s.Advance(time.Microsecond)
				s.fill(l, "k", 5)
				s.gone(store, l, set, "was reset, and others were made", 5)
			})
		},
	},
	{
		name:    "random holders",
		promise: "charges that are extended and given back at random count exactly from their last instant on",
		only:    func(a sash.Algorithm) bool { return a == sash.SlidingLog },
		run: func(s *suite) {
			const units = 40
			s.holding(units, func(store driver.Extender, settler driver.Settler, l *sash.Limiter, req driver.Request) {
				random := rand.New(rand.NewPCG(1, 2))
				var held []int64
				for range 1500 {
					s.Advance(time.Duration(1+random.IntN(int(window.Microseconds()/20))) * time.Microsecond)
					now, kept := s.Now().UnixMicro(), held[:0]
					for _, at := range held {
						if at > now-window.Microseconds() {
							kept = append(kept, at)
						}
					}
					held = kept
					i := random.IntN(len(held) + 1)
					switch what := random.IntN(4); {
					case i == len(held) || what == 0:
						answer := s.decide(req)
						if answer.Allowed() != (len(held) < units) {
							s.broken("allowed %v while %d of %d are held", answer.Allowed(), len(held), units)
						}
						if answer.Allowed() {
							held = append(held, answer.At)
						}
					case what == 1:
						s.settle(settler, driver.Settlement{Request: req, At: held[i]})
						held = append(held[:i], held[i+1:]...)
					default:
						held[i] = s.extend(store, driver.Settlement{Request: req, At: held[i]})
					}
					s.remain(l, req.Key, int64(units-len(held)), "while %d of %d are held", len(held), units)
				}
			})
		},
	},
	{
		name:    "algorithms that cannot extend",
		promise: "extending is an error under an algorithm that does not keep the instants of charges",
		only:    func(a sash.Algorithm) bool { return !a.Extends() },
		run: func(s *suite) {
			s.extending(func(store driver.Extender, l *sash.Limiter, set driver.Settlement) {
				if at, err := store.Extend(s.Context(), set); !errors.Is(err, driver.ErrUnsupported) {
					s.broken("it returned %d, %v", at, err)
				}
			})
		},
	},
}

// extending charges 3, 4 and 2 of 10 units, at three instants of one step of the resolution, and calls f with the second.
func (s *suite) extending(f func(driver.Extender, *sash.Limiter, driver.Settlement)) {
	s.Helper()
	store := power[driver.Extender](s)
	s.Advance(4 * window) // whatever was charged before has left
	s.settling(func(_ driver.Settler, l *sash.Limiter, set driver.Settlement) { f(store, l, set) })
}

func (s *suite) holding(units int64, f func(driver.Extender, driver.Settler, *sash.Limiter, driver.Request)) {
	s.Helper()
	store, settler := power[driver.Extender](s), power[driver.Settler](s)
	policy := s.policy(sash.Every(units, window))
	f(store, settler, s.limiter(sash.Every(units, window)), driver.Request{Key: "holders", Cost: 1, Policy: policy, MaySettle: true})
}

// extend extends a charge that is there.
func (s *suite) extend(store driver.Extender, set driver.Settlement) int64 {
	s.Helper()
	at, err := store.Extend(s.Context(), set)
	if err != nil {
		s.Fatal(err)
	}
	if at == 0 {
		s.broken("a charge of %v ago could not be extended", s.Now().Sub(time.UnixMicro(set.At)))
	}
	return at
}

// gone fails unless a charge cannot be extended, and left of 10 units remain.
func (s *suite) gone(store driver.Extender, l *sash.Limiter, set driver.Settlement, why string, left int64) {
	s.Helper()
	at, err := store.Extend(s.Context(), set)
	if err != nil {
		s.Fatal(err)
	}
	if remaining := s.peek(l, "k").Remaining; at != 0 || remaining != left {
		s.broken("a charge that %s: extended to %d, and %d remain", why, at, remaining)
	}
}
