package storetest

import (
	"time"

	"example.com/sash"
	"example.com/sash/driver"
)

// farthest is the farthest that a store books ahead.
const farthest = time.Duration(driver.MaxAhead) * time.Microsecond

// A bookSuite is a case on a store that books under the case's algorithm.
type bookSuite struct{ *suite }

func booking(run func(*bookSuite)) func(*suite) {
	return func(s *suite) {
		if !driver.CanBook(s.Store, s.policy(sash.Every(1, window))) {
			s.Skip("the store does not book under this algorithm")
		}
		s.align(8 * window)
		run(&bookSuite{s})
	}
}

func (s *bookSuite) request(key string, p *driver.Policy, cost int64, within time.Duration) driver.Request {
	return driver.Request{Key: key, Cost: cost, Policy: p, Within: within.Microseconds(), MaySettle: true}
}

func (s *bookSuite) ask(key string, p *driver.Policy, cost int64, within time.Duration) driver.Answer {
	s.Helper()
	res := s.decide(s.request(key, p, cost, within))
	if err := res.Check(p); err != nil {
		s.broken("%v", err)
	}
	return res
}

// left returns what remains to a request that may not be booked.
func (s *bookSuite) left(key string, p *driver.Policy) int64 {
	s.Helper()
	res := s.ask(key, p, 0, 0)
	return res.Remaining()
}

// book books, and fails the case unless the booking starts after the delay.
func (s *bookSuite) book(key string, p *driver.Policy, cost int64, want time.Duration) driver.Answer {
	s.Helper()
	res := s.ask(key, p, cost, farthest)
	if !res.Allowed() || res.Delay != want.Microseconds() || res.At != s.Now().Add(want).UnixMicro() {
		s.broken("%d units of %q: %+v, want a delay of %v from %d", cost, key, res, want, s.Now().UnixMicro())
	}
	return res
}

// settled settles a booking of "k".
func (s *bookSuite) settled(p *driver.Policy, cost int64, res driver.Answer, units int64) {
	s.Helper()
	store, ok := s.Store.(driver.Settler)
	if !ok {
		s.Skip("the store does not settle")
	}
	req := s.request("k", p, cost, farthest)
	s.settle(store, driver.Settlement{Request: req, At: res.At, Delay: res.Delay, Source: res.Source, Units: units})
}
