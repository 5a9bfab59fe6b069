package degrade

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/service/internal/decide"
)

// A Home is a store that all regions share, for rules with scope: global: how to reach it, and what is known of it.
// NewHome makes one.
type Home struct {
	// Store decides. NewHome sets it to the store of probes.
	Store driver.Store

	address string       // without the password
	store   driver.Store // for probes
	log     *slog.Logger
	budget  time.Duration
	counts  counts

	mu     sync.Mutex
	heard  time.Time     // guarded by mu: when it last answered
	failed int           // guarded by mu: failures in a row
	first  time.Time     // guarded by mu: the first of them
	why    error         // guarded by mu: the last of them
	lost   bool          // guarded by mu
	way    time.Duration // guarded by mu: how long a call takes
}

// NewHome returns what watches a home. Store asks it while no call does, and budget is the time that it has for one
// decision.
func NewHome(address string, budget time.Duration, store driver.Store, log *slog.Logger) *Home {
	return &Home{Store: store, address: address, store: store, budget: budget, log: log.With("home", address)}
}

// Home is lost after so many failures in a row, over so long a time.
const (
	lostFailures = 3
	lostAfter    = time.Second
)

// Note records a call that the home answered or did not: how long it took, and its error. It may be called concurrently.
func (h *Home) Note(took time.Duration, err error) {
	h.counts.calls.Add(1)
	if err != nil {
		h.counts.failed.Add(1)
	}
	h.saw(took, err)
}

func (h *Home) saw(took time.Duration, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	if err == nil {
		if h.lost {
			h.log.Info("the home answers again: rules with scope: global are decided", "after", now.Sub(h.first).Round(time.Millisecond))
		}
		h.heard, h.failed, h.why, h.lost = now, 0, nil, false
		switch {
		case h.way == 0:
			h.way = took
		case took > h.way:
			h.way += (took - h.way + 1) / 2
		default:
			h.way -= (h.way - took) / 8
		}
		return
	}
	if h.failed++; h.failed == 1 {
		h.first = now
	}
	h.why = err
	if !h.lost && h.failed >= lostFailures && now.Sub(h.first) >= lostAfter {
		h.lost = true
		h.log.Warn("the home does not answer: rules with scope: global go on with units that this region has leased, and then by on_unavailable", "error", err)
	}
}

// run asks the home while nobody else does, until the context ends.
func (h *Home) run(ctx context.Context) {
	ticker := time.NewTicker(absent / 2)
	defer ticker.Stop()
	for {
		h.mu.Lock()
		quiet := time.Since(h.heard) >= absent
		h.mu.Unlock()
		if quiet {
			h.probe(ctx)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// probed is what a probe charges: a server that cannot write, such as a replica, still answers PING.
var probed = driver.Request{
	Key: "probe of the home", Cost: 1, Policy: &driver.Policy{Limits: []driver.Limit{{Units: 1e9, Window: time.Second.Microseconds()}}},
}

func (h *Home) probe(ctx context.Context) {
	timed, cancel := context.WithTimeout(ctx, h.budget)
	defer cancel()
	began := time.Now()
	if _, err := h.store.Decide(timed, probed); ctx.Err() == nil {
		h.saw(time.Since(began), err)
	}
}

// state returns "up" or "down", and why it is down, as one of decide.Causes.
func (h *Home) state() (state, cause string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.lost {
		return "up", ""
	}
	return "down", decide.Cause(h.why)
}

// HomeStats are counts since the start, and what is known of the home now.
type HomeStats struct {
	// Calls are those of this process to the home, and Failed those without an answer.
	Calls, Failed int64
	// Leased units came from the home, Spent were spent by calls here, whoever fetched them, and Returned went back unspent.
	// Over all instances of a region, what was leased and neither spent nor returned is lost.
	Leased, Spent, Returned int64
	// Way is how long a call to the home takes. Up is whether it answers.
	Way time.Duration
	Up  bool
	// Address is where it is, without the password, and Since when it stopped answering; zero while it is up.
	Address string
	Since   time.Time
}

// Stats returns the counts.
func (h *Home) Stats() HomeStats {
	c := &h.counts
	s := HomeStats{
		Calls: c.calls.Load(), Failed: c.failed.Load(), Leased: c.leased.Load(), Spent: c.spent.Load(), Returned: c.returned.Load(),
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	s.Way, s.Up, s.Address = h.way, !h.lost, h.address
	if h.lost {
		s.Since = h.first
	}
	return s
}

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
	calls, failed, leased, spent, returned atomic.Int64
}

// Spend implements [driver.Holder]. Its only errors are the context's.
func (r *region) Spend(ctx context.Context, s driver.Spending) (driver.Held, error) {
	if !r.enter() {
		return driver.Held{Alone: true}, nil
	}
	held, err := within(ctx, r, func(ctx context.Context) (driver.Held, error) { return r.next.Spend(ctx, s) })
	switch {
	case ctx.Err() != nil:
		return driver.Held{}, ctx.Err()
	case err != nil:
		return driver.Held{Alone: true}, nil //nolint:nilerr // the home decides the call
	case held.Spent:
		r.counts.spent.Add(s.Cost)
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
