package coalesce_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/memstore"
)

// A ledger is a store in memory, a round trip away, that keeps the round trips.
type ledger struct {
	*memstore.Store
	trip time.Duration

	mu    sync.Mutex
	trips []int // guarded by mu: the requests of each round trip
}

func newLedger(trip time.Duration) *ledger { return &ledger{Store: memstore.New(nil), trip: trip} }

func (s *ledger) DecideEach(ctx context.Context, reqs []driver.Request) ([]driver.Answer, error) {
	if err := s.travel(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.trips = append(s.trips, len(reqs))
	s.mu.Unlock()
	answers := make([]driver.Answer, len(reqs))
	for i := range reqs {
		answer, err := s.Store.Decide(ctx, reqs[i])
		if err != nil {
			return nil, err
		}
		answers[i] = answer
	}
	return answers, s.travel(ctx)
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
