package coalesce_test

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/memstore"
)

// A far store is in memory, a round trip away. It works only in a synctest bubble.
type far struct {
	*memstore.Store
	trip     time.Duration
	calls    atomic.Int64
	underWay atomic.Int64
	most     atomic.Int64 // decisions under way at the same time
	err      error

	mu   sync.Mutex
	each []int // guarded by mu: the requests of each round trip
}

func newFar() *far { return &far{Store: memstore.New(nil), trip: time.Millisecond} }

func (f *far) DecideEach(ctx context.Context, reqs []driver.Request) ([]driver.Answer, error) {
	f.calls.Add(1)
	if n := f.underWay.Add(1); n > f.most.Load() {
		f.most.Store(n)
	}
	defer f.underWay.Add(-1)
	f.mu.Lock()
	f.each = append(f.each, len(reqs))
	f.mu.Unlock()
	if err := pass(ctx, f.trip/2); err != nil || f.err != nil {
		return nil, cmp.Or(err, f.err)
	}
	answers, err := driver.Passthrough{Next: f.Store}.DecideEach(ctx, reqs)
	if late := pass(ctx, f.trip/2); late != nil {
		return nil, late
	}
	return answers, err
}

// pass waits for a while, or until the context ends.
func pass(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *far) Decide(ctx context.Context, req driver.Request) (driver.Answer, error) {
	answers, err := f.DecideEach(ctx, []driver.Request{req})
	if err != nil {
		return driver.Answer{}, err
	}
	return answers[0], nil
}

func limiter(t testing.TB, store driver.Store, limits ...sash.Limit) *sash.Limiter {
	t.Helper()
	l, err := sash.New(store, nil, limits...)
	if err != nil {
		t.Fatal(err)
	}
	return l
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
