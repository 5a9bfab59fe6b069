package coalesce_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
)

// A ledger is a store a round trip away that books by the definition: it keeps every charge, and tries one instant after
// the other.
type ledger struct {
	trip time.Duration
	err  error

	mu      sync.Mutex
	charges []charge // guarded by mu
	trips   []int    // guarded by mu: the requests of each round trip
}

type charge struct{ at, units int64 }

// used returns the units in the window that ends at an instant.
func (s *ledger) used(at, window int64) (units int64) {
	for _, c := range s.charges {
		if c.at > at-window && c.at <= at {
			units += c.units
		}
	}
	return units
}

func (s *ledger) fits(at int64, req driver.Request) bool {
	for _, l := range req.Policy.Limits {
		if s.used(at, l.Window)+req.Cost > l.Units {
			return false
		}
	}
	return true
}

// earliest returns the first instant from now on at which the request fits behind all charges.
func (s *ledger) earliest(now int64, req driver.Request) int64 {
	for _, c := range s.charges {
		now = max(now, c.at)
	}
	instants := []int64{now}
	for _, c := range s.charges {
		for _, l := range req.Policy.Limits {
			instants = append(instants, max(now, c.at+l.Window))
		}
	}
	slices.Sort(instants)
	return instants[slices.IndexFunc(instants, func(at int64) bool { return s.fits(at, req) })]
}

func (s *ledger) decide(req driver.Request) driver.Answer {
	now := time.Now().UnixMicro()
	at := s.earliest(now, req)
	statuses := make([]driver.Status, len(req.Policy.Limits))
	if at-now > req.Within {
		statuses[0].Retry = at - now
		return driver.NewAnswer(now, 1, statuses)
	}
	s.charges = append(s.charges, charge{at, req.Cost})
	answer := driver.NewAnswer(at, 0, statuses)
	answer.Delay = at - now
	return answer
}

func (s *ledger) DecideEach(ctx context.Context, reqs []driver.Request) (answers []driver.Answer, _ error) {
	if err := s.travel(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.trips = append(s.trips, len(reqs))
	for _, req := range reqs {
		answers = append(answers, s.decide(req))
	}
	s.mu.Unlock()
	if err := s.travel(ctx); err != nil {
		return nil, err
	}
	return answers, s.err
}

// travel is half of a round trip.
func (s *ledger) travel(ctx context.Context) error {
	select {
	case <-time.After(s.trip / 2):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *ledger) Decide(ctx context.Context, req driver.Request) (driver.Answer, error) {
	answers, err := s.DecideEach(ctx, []driver.Request{req})
	if err != nil {
		return driver.Answer{}, err
	}
	return answers[0], nil
}

func (s *ledger) Settle(_ context.Context, set driver.Settlement) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.charges, charge{set.At, set.Request.Cost}); i >= 0 {
		s.charges[i].units = set.Units
	}
	return nil
}

func (s *ledger) Books(*driver.Policy) bool { return true }

// units returns the units that are charged.
func (s *ledger) units() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used(1<<62, 1<<62)
}

// roundTrips returns the requests of each round trip so far.
func (s *ledger) roundTrips() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.trips)
}

func policy(t testing.TB, limits ...sash.Limit) *driver.Policy {
	t.Helper()
	p, err := sash.NewPolicy(nil, limits...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// booking returns a request that may be booked for any time, and given back.
func booking(p *driver.Policy, cost int64) driver.Request {
	return driver.Request{Key: "k", Cost: cost, Policy: p, Within: driver.MaxAhead, MaySettle: true}
}
