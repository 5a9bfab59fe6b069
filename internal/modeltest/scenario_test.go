package modeltest

import (
	"context"
	"fmt"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/judge"
)

// A scenario makes chosen calls on one subject, and holds every answer against the definition. After an error it makes none.
type scenario struct {
	store   smallStore
	clock   *judge.Clock
	oracle  *oracle // nil: answers are not compared
	name    string
	policy  *driver.Policy
	settles bool // calls may be settled
	err     error
}

// newScenario returns a scenario on a new subject, under a policy or its error.
func newScenario(store smallStore, clock *judge.Clock, policy *driver.Policy, err error) *scenario {
	return &scenario{store: store, clock: clock, oracle: newOracle(), name: fmt.Sprint("scenario ", walks.Add(1)), policy: policy, err: err}
}

// scenario returns a scenario under some limits.
func (b *bench) scenario(limits ...sash.Limit) *scenario {
	policy, err := sash.NewPolicy(options(b.algorithm), limits...)
	return newScenario(b.store, b.clock, policy, err)
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
		answers, s.err = s.store.(driver.MultiStore).DecideAll(context.Background(), reqs)
	} else {
		answers[0], s.err = s.store.Decide(context.Background(), reqs[0])
	}
	s.check(reqs, answers)
	return answers[0]
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
			s.err = s.store.Settle(context.Background(), set)
		}
	}
}

// back gives the charge of an answer back.
func (s *scenario) back(cost int64, answer driver.Answer) { s.settle(cost, answer, 0, "", 1) }

// reset forgets the subject.
func (s *scenario) reset() {
	if s.err == nil {
		s.err = s.store.Reset(context.Background(), s.name, s.policy)
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
