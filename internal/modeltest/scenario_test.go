package modeltest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/drivertest"
	"example.com/sash/internal/judge"
	"example.com/sash/internal/threshold"
	"example.com/sash/memstore"
	"example.com/sash/redisstore"
)

// A scenario makes chosen calls on one subject, and holds every answer against the definition. After an error it makes none.
type scenario struct {
	store   driver.Store
	clock   *judge.Clock
	oracle  *oracle // nil: answers are not compared
	name    string
	policy  *driver.Policy
	settles bool // calls may be settled
	err     error
}

// newScenario returns a scenario on a new subject.
func newScenario(store driver.Store, clock *judge.Clock, policy *driver.Policy) *scenario {
	return &scenario{store: store, clock: clock, oracle: newOracle(), name: fmt.Sprint("scenario ", walks.Add(1)), policy: policy}
}

// scenario returns a scenario under some limits.
func (b *bench) scenario(limits ...sash.Limit) *scenario {
	return newScenario(b.store, b.clock, b.policy(limits...))
}

// request returns a request of the subject.
func (s *scenario) request(cost int64) driver.Request {
	return driver.Request{Key: s.name, Cost: cost, Policy: s.policy, MaySettle: s.settles}
}

// call makes a call, which may be booked within a time.
func (s *scenario) call(cost int64, within time.Duration) driver.Answer {
	req := s.request(cost)
	req.Within = within.Microseconds()
	return s.ask(req)
}

// calls makes calls of one unit, each after a gap.
func (s *scenario) calls(n int, gap time.Duration) {
	for range n {
		s.clock.Advance(gap)
		s.call(1, 0)
	}
}

// ask makes a call on one subject or several, and returns the first answer.
func (s *scenario) ask(reqs ...driver.Request) driver.Answer {
	if s.err != nil {
		return driver.Answer{}
	}
	answers := make([]driver.Answer, 1)
	if len(reqs) > 1 {
		answers, s.err = drivertest.Of(s.store).All(context.Background(), reqs...)
	} else {
		answers[0], s.err = drivertest.Of(s.store).Decide(context.Background(), reqs[0])
	}
	s.check(reqs, answers)
	return answers[0]
}

// once makes a call of one unit with an ID that the store does not remember, which may be booked within a time.
func (s *scenario) once(id string, within time.Duration) (answer driver.Answer) {
	req := s.request(1)
	req.Within = within.Microseconds()
	if s.err == nil {
		answer, s.err = drivertest.Of(s.store).Once(context.Background(), id, req)
	}
	s.check([]driver.Request{req}, []driver.Answer{answer})
	return answer
}

func (s *scenario) check(reqs []driver.Request, answers []driver.Answer) {
	if s.err == nil && s.oracle != nil {
		s.err = s.oracle.Check(s.clock.Now(), reqs, answers)
	}
}

// settle settles the charge of an answer, as often as it is repeated.
func (s *scenario) settle(cost int64, answer driver.Answer, units int64, id string, times int) {
	set := driver.Settlement{Request: s.request(cost), At: answer.At, Delay: answer.Delay, Source: answer.Source, Units: units, ID: id}
	if s.oracle != nil {
		s.oracle.Settle(s.clock.Now(), set)
	}
	for range times {
		if s.err == nil {
			s.err = drivertest.Of(s.store).Settle(context.Background(), set)
		}
	}
}

// back gives the charge of an answer back.
func (s *scenario) back(cost int64, answer driver.Answer) { s.settle(cost, answer, 0, "", 1) }

// reset forgets the subject.
func (s *scenario) reset() {
	if s.err == nil {
		s.err = drivertest.Of(s.store).Forget(context.Background(), s.name, s.policy)
	}
	if s.oracle != nil {
		s.oracle.Reset(s.name, s.policy.Algorithm)
	}
}

func (s *scenario) fail(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf(format, args...)
	}
}

// wantLeft expects that so many units remain.
func (s *scenario) wantLeft(want int64) {
	if got := s.call(0, 0); got.Remaining() != want {
		s.fail("%d units remain, want %d", got.Remaining(), want)
	}
}

// inSeconds returns the options of an algorithm, with steps of a second.
func inSeconds(a sash.Algorithm) *sash.Options {
	opts := &sash.Options{Algorithm: a}
	if a == sash.SlidingBuckets {
		opts.Resolution = time.Second
	}
	return opts
}

func edgePolicy(a sash.Algorithm, limits ...sash.Limit) *driver.Policy {
	return must(sash.NewPolicy(inSeconds(a), limits...))
}

// under goes on under other limits.
func (s *scenario) under(limits ...sash.Limit) { s.policy = edgePolicy(s.policy.Algorithm, limits...) }

// bookEdges are the edges of bookings. The second scripter has small steps.
func bookEdges(redis *redisstore.Store, clock *judge.Clock, small *scripter, a sash.Algorithm) error {
	for _, edge := range []struct {
		name  string
		limit sash.Limit
		check func(s *scenario)
	}{
		{"a window ahead", sash.Every(5, 10*time.Second), func(s *scenario) {
			first := s.call(5, time.Hour)
			s.call(5, time.Hour)
			s.back(5, first)
			if got := s.call(5, 0); !got.Allowed() {
				s.fail("a call is refused for a booking that starts a window later")
			}
		}},
		{"charges that may be settled", sash.Every(6, 10*time.Second), func(s *scenario) {
			for i, within := range []time.Duration{0, time.Hour, 0} {
				cost := []int64{4, 4, 1}[i]
				s.ask(driver.Request{Key: s.name, Cost: cost, Within: within.Microseconds(), Policy: s.policy, MaySettle: i == 2})
				clock.Advance(time.Millisecond)
			}
			clock.Advance(9998 * time.Millisecond)
			if got := s.call(6, 0); got.Allowed() || got.Firm {
				s.fail("after a charge that may be settled: allowed %v, firm %v", got.Allowed(), got.Firm)
			}
		}},
		{"a longer window", sash.Every(2, time.Second), func(s *scenario) {
			s.call(2, time.Hour)
			s.call(2, time.Hour)
			s.under(sash.Every(10, time.Minute))
			s.call(1, 0)
			clock.Advance(59 * time.Second)
			s.wantLeft(5)
		}},
		{"a new log ahead", sash.Every(2, 10*time.Second), func(s *scenario) {
			s.call(2, time.Hour)
			one := driver.Request{Key: s.name, Cost: 1, Within: driver.MaxAhead, Policy: s.policy, MaySettle: true}
			two := one
			two.Key += "two"
			s.ask(one, two)
			s.name = two.Key
			s.back(1, s.call(1, 0))
			s.wantLeft(2)
		}},
		{"a clock that goes back onto other bookings", sash.Every(1, 10*time.Second), func(s *scenario) {
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
			s.wantLeft(0) // the settlement of a booking that was moved gives no other one back
		}},
		{"a booking from before a reset", sash.Every(2, 10*time.Second), func(s *scenario) {
			s.call(2, 0)
			before := s.call(1, time.Hour)
			s.reset()
			s.oracle = nil
			clock.Advance(time.Microsecond)
			s.under(sash.Every(2, 10*time.Second-time.Microsecond))
			s.call(2, 0)
			if after := s.call(1, time.Hour); after.At != before.At {
				s.fail("it is at %d, and another one at %d", before.At, after.At)
			}
			s.back(1, before)
			clock.Advance(10 * time.Second)
			s.wantLeft(1)
		}},
		{"a booking with an ID that is over, hours ahead", sash.PerCalendar(10, sash.CalendarHour, nil), func(s *scenario) {
			s.once("job", 0)
			clock.Advance(6 * time.Minute)
			for range 33 {
				s.call(1, 24*time.Hour)
			}
			if got := s.once("job", 24*time.Hour); !got.Allowed() || got.Delay < 2*time.Hour.Microseconds() {
				s.fail("it is %s", shown(&got))
			}
		}},
		{"a charge that a clock has moved takes more", sash.Every(10, time.Minute), movedTakesMore},
		{"a gap in the last period that is known", sash.PerHour(9), func(s *scenario) {
			clock.Advance(time.Hour - clock.Now().Sub(clock.Now().Truncate(time.Hour)))
			s.under(sash.PerCalendar(2, sash.CalendarHour, nil), sash.Every(1, 10*time.Second))
			var booked [5]driver.Answer // of which the last is in the period after
			for i := range booked {
				booked[i] = s.call(1, 24*time.Hour)
			}
			s.back(1, booked[3])
			s.call(1, 24*time.Hour)
		}},
		{"the most ahead", sash.Every(2, 10*time.Second), func(s *scenario) {
			scripts := &scripter{client: small.client, clock: small.clock, edit: small.edit, aging: small.aging}
			scripts.thresholds = smallSteps.But(threshold.Table{"MOST_AHEAD": 5, "WALK_AHEAD": 4})
			before := threshold.Log
			threshold.Log.Ahead, threshold.Log.Walk = 5, 3
			defer func() { threshold.Log = before }()
			s.store, s.clock = redisstore.New(scripts, nil), small.clock
			for range 8 {
				s.call(2, time.Hour)
			}
			s.under(sash.Every(1000, 30*time.Second+time.Microsecond))
			if got := s.call(1, 0); !got.Allowed() {
				s.fail("a call is refused that has three bookings and the charge of now to look at")
			}
			s.under(sash.Every(1000, 50*time.Second+time.Microsecond))
			if got := s.call(1, 0); got.Allowed() {
				s.fail("a call looks at more bookings than it may")
			}
		}},
	} {
		s := newScenario(redis, clock, edgePolicy(a, edge.limit))
		s.settles = true
		if edge.check(s); s.err != nil {
			return fmt.Errorf("%s: %w", edge.name, s.err)
		}
	}
	return nil
}

// movedTakesMore settles a charge that a clock has moved to more, before a booking that has no part in it.
func movedTakesMore(s *scenario) {
	s.oracle = nil
	moved := s.call(4, 0)
	s.call(8, time.Hour)
	s.clock.Advance(-10 * time.Second)
	s.call(0, 0)
	s.clock.Advance(time.Second)
	s.settle(4, moved, 6, "", 1)
	s.wantLeft(2)
}

func TestAMovedChargeTakesNoMoreOfABooking(t *testing.T) {
	clock := judge.NewClock(start)
	s := newScenario(memstore.New(&memstore.Options{Now: clock.Now}), clock, newPolicy(t, nil, sash.Every(10, time.Minute)))
	s.settles = true
	if movedTakesMore(s); s.err != nil {
		t.Error(s.err)
	}
}

// booked: random bookings answer by the definition, with rings and steps of any size.
func (b *bench) booked() error {
	if !b.books() {
		return nil
	}
	small, clock, _ := b.small()
	for seed := range uint64(60) { // the last 15 on a clock that also goes back by little
		store, now := b.store, b.clock
		if seed%2 == 0 {
			store, now = small, clock
		}
		err := randomCalls(setup{
			store: store, clock: now, algorithm: b.algorithm, usual: bookings, little: seed >= 45, steps: 150,
			prefix: fmt.Sprint("booked", seed, ":"), choose: rand.New(rand.NewPCG(seed%45, 29)).IntN,
		})
		if err != nil {
			return fmt.Errorf("walk %d with bookings: %w", seed, err)
		}
	}
	return nil
}

// small returns the same build of the scripts with small steps.
func (b *bench) small() (*redisstore.Store, *judge.Clock, *scripter) {
	store, clock, scripts := virtual(b.t, b.server, b.edit)
	scripts.thresholds = smallSteps
	return store, clock, scripts
}

// edged: the edges of bookings are those of memory.
func (b *bench) edged() error {
	if !b.books() {
		return nil
	}
	_, _, small := b.small()
	return bookEdges(b.store, b.clock, small, b.algorithm)
}

func shown(a *driver.Answer) string {
	return fmt.Sprintf("refusals %b, at %d, delay %d, %+v", a.Refusals, a.At%1e12, a.Delay, a.Statuses())
}
