package modeltest

import (
	"context"
	"fmt"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/judge"
	"example.com/sash/internal/threshold"
	"example.com/sash/redisstore"
)

// A scenario makes calls that chance seldom makes, on Redis and in memory.
type scenario struct {
	*bookWalk
	policy *driver.Policy
	err    error
}

func newScenario(redis *redisstore.Store, clock *judge.Clock, a sash.Algorithm, limits ...sash.Limit) *scenario {
	w, err := newBookWalk(redis, clock, 0, a, make(map[string]int))
	s := &scenario{bookWalk: w, err: err}
	if err == nil {
		s.policy = s.under(a, limits...)
	}
	return s
}

func (s *scenario) under(a sash.Algorithm, limits ...sash.Limit) *driver.Policy {
	opts := &sash.Options{Algorithm: a}
	if a == sash.SlidingBuckets {
		opts.Resolution = time.Second
	}
	policy, err := sash.NewPolicy(opts, limits...)
	if err != nil {
		s.err = err
	}
	return policy
}

// call makes a call and returns its answer, which is the same in both stores.
func (s *scenario) call(cost int64, within time.Duration) (answer driver.Answer) {
	req := driver.Request{Key: s.name, Cost: cost, Within: within.Microseconds(), Policy: s.policy, MaySettle: true}
	return s.ask(req)
}

func (s *scenario) ask(reqs ...driver.Request) (answer driver.Answer) {
	if s.err != nil {
		return answer
	}
	s.err = s.compare(reqs, func(store driver.Batcher) ([]driver.Answer, error) {
		if len(reqs) > 1 {
			return store.(driver.MultiStore).DecideAll(context.Background(), reqs)
		}
		got, err := store.Decide(context.Background(), reqs[0])
		answer = got
		return []driver.Answer{got}, err
	})
	return answer
}

// back gives the charge of an answer back.
func (s *scenario) back(cost int64, answer driver.Answer) {
	req := driver.Request{Key: s.name, Cost: cost, Policy: s.policy, MaySettle: true}
	set := driver.Settlement{Request: req, At: answer.At, Delay: answer.Delay}
	for _, store := range []driver.Settler{s.memory, s.redis} {
		if err := store.Settle(context.Background(), set); err != nil {
			s.err = err
		}
	}
}

func (s *scenario) fail(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf(format, args...)
	}
}

// bookEdges are the edges of bookings. The second scripter has small steps.
func bookEdges(redis *redisstore.Store, clock *judge.Clock, small *scripter, a sash.Algorithm) error {
	for _, edge := range []struct {
		name  string
		check func() error
	}{
		{"a window ahead", func() error {
			s := newScenario(redis, clock, a, sash.Every(5, 10*time.Second))
			first := s.call(5, time.Hour)
			s.call(5, time.Hour)
			s.back(5, first)
			if got := s.call(5, 0); !got.Allowed() {
				s.fail("a call is refused for a booking that starts a window later")
			}
			return s.err
		}},
		{"charges that may be settled", func() error {
			s := newScenario(redis, clock, a, sash.Every(6, 10*time.Second))
			for i, within := range []time.Duration{0, time.Hour, 0} {
				cost := []int64{4, 4, 1}[i]
				s.ask(driver.Request{Key: s.name, Cost: cost, Within: within.Microseconds(), Policy: s.policy, MaySettle: i == 2})
				clock.Advance(time.Millisecond)
			}
			clock.Advance(9998 * time.Millisecond)
			if got := s.call(6, 0); got.Allowed() || got.Firm {
				s.fail("after a charge that may be settled: allowed %v, firm %v", got.Allowed(), got.Firm)
			}
			return s.err
		}},
		{"a longer window", func() error {
			s := newScenario(redis, clock, a, sash.Every(2, time.Second))
			s.call(2, time.Hour)
			s.call(2, time.Hour)
			s.policy = s.under(a, sash.Every(10, time.Minute))
			s.call(1, 0)
			clock.Advance(59 * time.Second)
			if got := s.call(0, 0); got.Remaining() != 5 {
				s.fail("%d remain of 10 after a booking of 2 and others of 3", got.Remaining())
			}
			return s.err
		}},
		{"a new log ahead", func() error {
			s := newScenario(redis, clock, a, sash.Every(2, 10*time.Second))
			s.call(2, time.Hour)
			one := driver.Request{Key: s.name, Cost: 1, Within: driver.MaxAhead, Policy: s.policy, MaySettle: true}
			two := one
			two.Key += "two"
			s.ask(one, two)
			s.name = two.Key
			s.back(1, s.call(1, 0))
			if got := s.call(0, 0); got.Remaining() != 2 {
				s.fail("%d remain after what was charged before a booking is given back", got.Remaining())
			}
			return s.err
		}},
		{"a clock that goes back onto other bookings", func() error {
			s := newScenario(redis, clock, a, sash.Every(1, 10*time.Second))
			clock.Advance(time.Minute)
			s.call(1, 0)
			clock.Advance(5 * time.Second)
			s.call(1, time.Hour)
			second := s.call(1, time.Hour)
			s.call(1, time.Hour)
			clock.Advance(-10 * time.Second)
			s.call(0, 0)
			s.back(1, second)
			clock.Advance(26 * time.Second)
			if got := s.call(0, 0); got.Remaining() != 0 {
				s.fail("the settlement of a booking that was moved gave another one back")
			}
			return s.err
		}},
		{"the most ahead", func() error {
			scripts := &scripter{client: small.client, clock: small.clock, edit: small.edit, aging: small.aging}
			scripts.thresholds = smallSteps.But(threshold.Table{"MOST_AHEAD": 5, "WALK_AHEAD": 4})
			before := threshold.Log
			threshold.Log.Ahead, threshold.Log.Walk = 5, 3
			defer func() { threshold.Log = before }()
			clock := small.clock
			s := newScenario(redisstore.New(scripts, nil), clock, a, sash.Every(2, 10*time.Second))
			for range 8 {
				s.call(2, time.Hour)
			}
			s.policy = s.under(a, sash.Every(1000, 30*time.Second+time.Microsecond))
			if got := s.call(1, 0); !got.Allowed() {
				s.fail("a call is refused that has three bookings and the charge of now to look at")
			}
			s.policy = s.under(a, sash.Every(1000, 50*time.Second+time.Microsecond))
			if got := s.call(1, 0); got.Allowed() {
				s.fail("a call looks at more bookings than it may")
			}
			return s.err
		}},
	} {
		if err := edge.check(); err != nil {
			return fmt.Errorf("%s: %w", edge.name, err)
		}
	}
	return nil
}
