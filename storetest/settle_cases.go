package storetest

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/judge"
)

// settleCases test charges that are corrected afterwards, on stores that support it.
var settleCases = []testCase{
	{
		name:    "a charge can be given back",
		promise: "a charge that is settled with 0 is free at once, and others stay charged",
		run: func(s *suite) {
			s.settling(func(store driver.Settler, l *sash.Limiter, set driver.Settlement) {
				before := s.peek(l, "k").Remaining
				s.settle(store, set)
				s.remain(l, "k", before+4, "4 more than before, as they were given back")
			})
		},
	},
	{
		name:    "a charge can be made more",
		promise: "units beyond the estimate are charged even if there is no room for them, and admit nothing",
		run: func(s *suite) {
			s.settling(func(store driver.Settler, l *sash.Limiter, set driver.Settlement) {
				set.Units = 100
				s.settle(store, set)
				res := s.allow(l, "k", 1)
				if res.Allowed || res.Remaining != 0 {
					s.broken("105 of 10 are in use: allowed %v, %d remain", res.Allowed, res.Remaining)
				}
				s.Advance(res.RetryAfter)
				if res := s.allow(l, "k", 1); !res.Allowed {
					s.broken("refused after RetryAfter, for another %v", res.RetryAfter)
				}
			})
		},
	},
	{
		name:    "a firm refusal holds",
		promise: "a firm refusal is not followed by room before its RetryAfter, whatever is settled",
		run: func(s *suite) {
			power[driver.Settler](s)
			policy := s.policy(sash.Every(40, window))
			for n := range 40 { // through every growth of a log, with the settled charge at any place
				key := fmt.Sprint("k", n)
				l := s.limiter(sash.Every(40, window))
				var r *sash.Reservation
				for i := range 40 {
					if i == n {
						var err error
						if r, err = l.Reserve(s.Context(), key, 1); err != nil || !r.Allowed() {
							s.Fatalf("%+v, %v", r, err)
						}
					} else {
						s.fill(l, key, 1)
					}
					s.Advance(time.Microsecond)
				}
				for range 2 { // a refusal must not change the next answer
					refusal := s.decide(driver.Request{Key: key, Cost: 1, Policy: policy})
					if !refusal.Firm {
						continue
					}
					if err := r.Cancel(s.Context()); err != nil {
						s.Fatal(err)
					}
					if res := s.allow(l, key, 1); res.Allowed {
						s.broken("a call was refused firmly, charge %d of 40 was given back, and the next call was admitted", n)
					}
				}
			}
		},
	},
	{
		name:    "settling is idempotent",
		promise: "a settlement is applied once, however often it is repeated and whatever happens in between",
		run: func(s *suite) {
			for name, units := range map[string]int64{"less": 1, "none": 0, "more": 5} {
				s.settlingKey("k "+name, func(store driver.Settler, l *sash.Limiter, set driver.Settlement) {
					before := s.peek(l, set.Request.Key).Remaining
					set.Units = units
					for range 3 {
						s.settle(store, set)
					}
					left := s.peek(l, set.Request.Key).Remaining
					if left != before+4-units {
						s.broken("%d remained, and %d after 4 became %d", before, left, units)
					}
					if left > 0 {
						s.fill(l, set.Request.Key, 1)
						left--
					}
					s.settle(store, set)
					s.remain(l, set.Request.Key, left, "a repetition changes nothing")
				})
			}
		},
	},
	{
		name:    "settling what has left is harmless",
		promise: "a settlement of a charge that has left the window changes nothing, up or down",
		run: func(s *suite) {
			for name, units := range map[string]int64{"down": 0, "up": 100} {
				s.settlingKey("k "+name, func(store driver.Settler, l *sash.Limiter, set driver.Settlement) {
					s.Advance(4 * window)
					s.fill(l, set.Request.Key, 6)
					set.Units = units
					s.settle(store, set)
					s.remain(l, set.Request.Key, 4, "6 of 10 were charged after the charge had left")
				})
			}
		},
	},
	{
		name:    "settling after a reset",
		promise: "a settlement of a charge from before a reset changes nothing, up or down, whatever was charged since",
		run: func(s *suite) {
			power[driver.Resetter](s)
			for name, units := range map[string]int64{"down": 0, "up": 100} {
				s.settlingKey("k "+name, func(store driver.Settler, l *sash.Limiter, set driver.Settlement) {
					key := set.Request.Key
					for i := range 3 { // in the same step of a resolution, and in the same window
						s.reset(l, key)
						set.Units, set.ID = units, fmt.Sprint("settlement ", i, " of ", key)
						s.settle(store, set) // of nothing
						s.Advance(time.Microsecond)
						s.fill(l, key, 4)
						s.Advance(time.Microsecond)
						s.fill(l, key, 2)
						for range 2 {
							s.settle(store, set)
						}
						s.remain(l, key, 4, "6 of 10 were charged since the reset")
					}
				})
			}
		},
	},
	{
		name:    "settling after a clock that went back",
		promise: "a charge moved by a clock that went back takes nothing from others when it is given back, and an increase of it is still charged",
		only:    exact,
		run: func(s *suite) {
			for name, c := range map[string]struct{ units, left int64 }{"down": {0, 3}, "up": {6, 1}} {
				s.settlingKey("k "+name, func(store driver.Settler, l *sash.Limiter, set driver.Settlement) {
					s.Advance(-time.Second)
					s.peek(l, set.Request.Key) // all 9 of 10 count as charged now
					s.Advance(window - time.Microsecond)
					s.remain(l, set.Request.Key, 1, "9 of 10 count from when the clock was seen to go back")
					s.Advance(time.Microsecond + resolution)
					s.fill(l, set.Request.Key, 7)
					set.Units = c.units
					s.settle(store, set)
					s.remain(l, set.Request.Key, c.left, "after a charge of 4 became %d", c.units)
				})
			}
		},
	},
	{
		name:    "calls of one instant are settled apart",
		promise: "calls charged in the same microsecond can each be settled, once",
		run: func(s *suite) {
			power[driver.Settler](s)
			l := s.limiter(sash.Every(100, window))
			var all []*sash.Reservation
			for range 5 {
				all = append(all, s.reserve(l, 20))
			}
			if r := s.reserve(l, 1); r.Allowed() {
				s.broken("more than 100 units were admitted")
			}
			for i, r := range all {
				for range 2 {
					if err := r.Settle(s.Context(), int64(i)*6); err != nil {
						s.Fatal(err)
					}
				}
			}
			s.remain(l, "k", 100-6-12-18-24, "60 were used")
		},
	},
	{
		name:    "reservations keep the bound",
		promise: "with estimates that are not too low, no window holds more settled units than the limit, and no estimate that fits is refused",
		only:    func(a sash.Algorithm) bool { return a.Exact() },
		run: func(s *suite) {
			power[driver.Settler](s)
			limits := []sash.Limit{sash.Every(100, window), sash.Every(250, 3*window)}
			l := s.limiter(limits...)
			rng := rand.New(rand.NewPCG(7, 9))
			type open struct {
				*sash.Reservation
				index int
			}
			var history []judge.Call
			var running []open
			for step := range 1500 {
				s.Advance(time.Duration(rng.IntN(600_000)) * time.Microsecond)
				if rng.IntN(2) == 0 && len(running) > 0 {
					i := rng.IntN(len(running))
					r := running[i]
					running = append(running[:i], running[i+1:]...)
					estimate := history[r.index].Cost
					actual := rng.Int64N(estimate + 1)
					history[r.index].Cost = actual
					if err := r.Settle(s.Context(), actual); err != nil {
						s.Fatal(err)
					}
					continue
				}
				estimate := 1 + rng.Int64N(30)
				r := s.reserve(l, estimate)
				if !r.Allowed() {
					fits := judge.CheckHistory(limits, append(history[:len(history):len(history)], judge.Call{At: s.Now(), Cost: estimate})) == nil
					if fits && s.algorithm != sash.SlidingBuckets { // they hold a unit a little longer
						s.broken("step %d: an estimate of %d was refused although there is room", step, estimate)
					}
					continue
				}
				history = append(history, judge.Call{At: r.Result().At, Cost: estimate})
				running = append(running, open{r, len(history) - 1})
				if err := judge.CheckHistory(limits, history); err != nil {
					s.broken("step %d: %v", step, err)
				}
			}
		},
	},
	{
		name:    "concurrent reservations",
		promise: "concurrent reservations and settlements never hold more than the limit, and leave the units used",
		run: func(s *suite) {
			power[driver.Settler](s)
			l := s.limiter(sash.Every(100, window))
			var mu sync.Mutex
			var held, most, used int64
			var group sync.WaitGroup
			for range 16 {
				group.Go(func() {
					for range 10 {
						r, err := l.Reserve(s.Context(), "k", 20)
						if err != nil {
							s.Error(err)
							return
						}
						if !r.Allowed() {
							continue
						}
						mu.Lock()
						held += 20
						most = max(most, held)
						held -= 20 - 1 // the store gives back after that
						used++
						mu.Unlock()
						if err := r.Settle(s.Context(), 1); err != nil {
							s.Error(err)
						}
						if err := r.Cancel(s.Context()); err != nil {
							s.Error(err)
						}
					}
				})
			}
			group.Wait()
			left := s.peek(l, "k").Remaining
			if most > 100 || left != 100-used {
				s.broken("%d units were held at once; %d calls used one each, and %d of 100 remain", most, used, left)
			}
		},
	},
}

// settling runs f on a subject with a limit of 10, of which 3, 4 and 2 are in use, and with the settlement that
// gives back the 4.
func (s *suite) settling(f func(driver.Settler, *sash.Limiter, driver.Settlement)) {
	s.Helper()
	s.settlingKey("k", f)
}

func (s *suite) settlingKey(key string, f func(driver.Settler, *sash.Limiter, driver.Settlement)) {
	s.Helper()
	store := power[driver.Settler](s)
	s.align(8 * window)
	policy := s.policy(sash.Every(10, window))
	l := s.limiter(sash.Every(10, window))
	s.fill(l, key, 3)
	s.Advance(time.Microsecond)
	req := driver.Request{Key: key, Cost: 4, Policy: policy, MaySettle: true}
	res := s.decide(req)
	s.Advance(time.Microsecond)
	s.fill(l, key, 2)
	f(store, l, driver.Settlement{Request: req, At: res.At, Source: res.Source, ID: fmt.Sprint("settlement of ", key)})
}

func (s *suite) settle(store driver.Settler, set driver.Settlement) {
	s.Helper()
	if err := store.Settle(s.Context(), set); err != nil {
		s.Fatal(err)
	}
}

func (s *suite) reserve(l *sash.Limiter, estimate int64) *sash.Reservation {
	s.Helper()
	r, err := l.Reserve(s.Context(), "k", estimate)
	if err != nil {
		s.Fatal(err)
	}
	return r
}
