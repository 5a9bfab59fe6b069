package lease_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/lease"
	"example.com/sash/memstore"
)

// An ocean is a home store that is a while away from the processes that use it, each way.
type ocean struct {
	*memstore.Store
	way    time.Duration
	asked  atomic.Int64 // decisions
	calls  atomic.Int64 // with settlements
	cut    atomic.Bool  // no question arrives
	silent atomic.Bool  // no answer arrives
}

// there takes a question to the home, and the answer back.
func (o *ocean) there(ctx context.Context, do func() error) error {
	o.calls.Add(1)
	if o.cut.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	time.Sleep(o.way)
	err := do()
	if o.silent.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	time.Sleep(o.way)
	return err
}

func (o *ocean) Decide(ctx context.Context, req driver.Request) (answer driver.Answer, err error) {
	o.asked.Add(1)
	err = o.there(ctx, func() error { answer, err = o.Store.Decide(ctx, req); return err })
	return answer, err
}

func (o *ocean) DecideOnce(ctx context.Context, id string, req driver.Request) (answer driver.Answer, err error) {
	err = o.there(ctx, func() error { answer, err = o.Store.DecideOnce(ctx, id, req); return err })
	return answer, err
}

func (o *ocean) Settle(ctx context.Context, set driver.Settlement) error {
	return o.there(ctx, func() error { return o.Store.Settle(ctx, set) })
}

func newOcean(way time.Duration) *ocean { return &ocean{Store: memstore.New(nil), way: way} }

// newRegion returns limiters of so many processes that share leases, in a region whose clock is ahead by a while.
func newRegion(t testing.TB, home driver.Store, processes int, longest, ahead time.Duration, limits ...sash.Limit) []*sash.Limiter {
	t.Helper()
	limiters, _ := newRegionStores(t, home, processes, longest, ahead, limits...)
	return limiters
}

func newRegionStores(t testing.TB, home driver.Store, processes int, longest, ahead time.Duration, limits ...sash.Limit) (ls []*sash.Limiter, stores []*lease.Store) {
	t.Helper()
	holder := memstore.New(&memstore.Options{Now: func() time.Time { return time.Now().Add(ahead) }})
	for range processes {
		store, err := lease.Shared(home, holder, longest, nil)
		if err != nil {
			t.Fatal(err)
		}
		stores = append(stores, store)
		ls = append(ls, newLimiter(t, store, nil, limits...))
	}
	return ls, stores
}

const trip = 150 * time.Millisecond // to the home and back
