package storetest_test

import (
	"bytes"
	"context"
	"sync"
	"testing"
	"time"

	"example.com/sash/driver"
	"example.com/sash/internal/judge"
	"example.com/sash/memstore"
	"example.com/sash/storetest"
)

// A restarted store continues in a new one from a snapshot, every third call.
type restarted struct {
	t    *testing.T
	opts memstore.Options

	mu    sync.Mutex
	now   *memstore.Store // guarded by mu
	calls int             // guarded by mu
}

// store returns the store for a call. The caller holds mu until the call ends.
func (r *restarted) store() *memstore.Store {
	if r.calls++; r.calls%3 != 0 {
		return r.now
	}
	var snapshot bytes.Buffer
	if err := r.now.Snapshot(&snapshot); err != nil {
		r.t.Error(err)
	}
	r.now = memstore.New(&r.opts)
	if err := r.now.Restore(&snapshot); err != nil {
		r.t.Error(err)
	}
	return r.now
}

func (r *restarted) Decide(ctx context.Context, req driver.Request) (driver.Answer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.store().Decide(ctx, req)
}

func (r *restarted) DecideEach(ctx context.Context, reqs []driver.Request) ([]driver.Answer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.store().DecideEach(ctx, reqs)
}

func (r *restarted) Books(policy *driver.Policy) bool { return policy.Bookable() }

func (r *restarted) DecideAll(ctx context.Context, reqs []driver.Request) ([]driver.Answer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.store().DecideAll(ctx, reqs)
}

func (r *restarted) DecideOnce(ctx context.Context, id string, req driver.Request) (driver.Answer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.store().DecideOnce(ctx, id, req)
}

func (r *restarted) Settle(ctx context.Context, set driver.Settlement) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.store().Settle(ctx, set)
}

func (r *restarted) Reset(ctx context.Context, key string, policy *driver.Policy) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.store().Reset(ctx, key, policy)
}

func (r *restarted) CoolDown(ctx context.Context, key string, c driver.CoolDown) (driver.CoolDown, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.store().CoolDown(ctx, key, c)
}

// A restored store answers like the store before it.
func TestRestoredMemstore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		clock := judge.NewClock(time.Date(2026, 5, 4, 10, 0, 0, 123_456_000, time.UTC))
		opts := memstore.Options{Now: clock.Now}
		return storetest.Harness{
			Store:   &restarted{t: t, opts: opts, now: memstore.New(&opts)},
			Now:     clock.Now,
			Advance: clock.Advance,
		}
	})
}
