package degrade

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"example.com/sash/driver"
	"example.com/sash/failover"
)

// A region is the holder of leases on the region's Redis, within the budget of that Redis. A call that it does not answer
// is decided by the home alone: slower, and as exact. What a late answer spent is spent by nobody: fewer are admitted.
type region struct {
	next   driver.Holder
	budget time.Duration
	counts *counts

	mu       sync.Mutex
	failures int       // in a row; guarded by mu
	again    time.Time // guarded by mu: while it fails, when the next call may try it
}

var _ driver.Holder = (*region)(nil)

// counts are what a service did at its home and with leases.
type counts struct {
	calls, failed, errands, leased, spent, returned, alone atomic.Int64
}

// Spend implements [driver.Holder]. Its only errors are the context's.
func (r *region) Spend(ctx context.Context, s driver.Spending) (driver.Held, error) {
	if !r.enter() {
		r.counts.alone.Add(1)
		return driver.Held{Alone: true}, nil
	}
	held, err := within(ctx, r, func(ctx context.Context) (driver.Held, error) { return r.next.Spend(ctx, s) })
	switch {
	case ctx.Err() != nil:
		return driver.Held{}, ctx.Err()
	case err != nil:
		r.counts.alone.Add(1)
		return driver.Held{Alone: true}, nil //nolint:nilerr // the home decides the call
	case held.Spent:
		r.counts.spent.Add(s.Cost)
	}
	if held.Errand > 0 {
		r.counts.errands.Add(1)
	}
	return held, nil
}

// Bring implements [driver.Holder].
func (r *region) Bring(ctx context.Context, e driver.Errand) (bool, error) {
	kept, err := within(ctx, r, func(ctx context.Context) (bool, error) { return r.next.Bring(ctx, e) })
	if kept {
		r.counts.leased.Add(e.Units)
	}
	return kept, err
}

// Return implements [driver.Holder].
func (r *region) Return(ctx context.Context, key string, began, keep int64) (int64, error) {
	units, err := within(ctx, r, func(ctx context.Context) (int64, error) { return r.next.Return(ctx, key, began, keep) })
	r.counts.returned.Add(units)
	return units, err
}

// Forget implements [driver.Holder].
func (r *region) Forget(ctx context.Context, key string) error {
	_, err := within(ctx, r, func(ctx context.Context) (struct{}, error) { return struct{}{}, r.next.Forget(ctx, key) })
	return err
}

const (
	mostFailures = 5 // in a row, and then calls keep away from the region's Redis for a while
	firstAway    = 100 * time.Millisecond
	lastAway     = 2 * time.Second
)

// enter reports whether a call may try the region's Redis: while it fails, one does after each pause.
func (r *region) enter() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if r.failures < mostFailures {
		return true
	}
	if now.Before(r.again) {
		return false
	}
	r.again = now.Add(min(firstAway<<min(r.failures-mostFailures, 8), lastAway))
	return true
}

func (r *region) note(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.failures = 0
		return
	}
	if r.failures++; r.failures == mostFailures {
		r.again = time.Now().Add(firstAway)
	}
}

// within calls the region's Redis, for the budget at most. A call that is late goes on in the background, until the client
// gives its connection up. Its answer or the end of the budget counts, also after the caller has left.
func within[T any](ctx context.Context, r *region, f func(context.Context) (T, error)) (T, error) {
	type outcome struct {
		value T
		err   error
	}
	done := make(chan outcome, 1)
	var first sync.Once
	ends := func(out outcome) {
		first.Do(func() {
			r.note(out.err)
			done <- out
		})
	}
	timer := time.AfterFunc(r.budget, func() { ends(outcome{err: failover.ErrBudget}) })
	go func() {
		var out outcome
		defer func() {
			timer.Stop()
			if p := recover(); p != nil {
				out.err = fmt.Errorf("the client of the region's Redis panicked: %v", p)
			}
			ends(out)
		}()
		out.value, out.err = f(context.WithoutCancel(ctx))
	}()
	var none T
	select {
	case out := <-done:
		return out.value, out.err
	case <-ctx.Done():
		return none, ctx.Err()
	}
}
