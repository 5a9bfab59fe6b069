package degrade

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"example.com/sash/driver"
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
	// Errands went to the home for units; Leased units came back, Spent were spent by calls here, whoever fetched them, and
	// Returned went back unspent. Over all instances of a region, what was leased and neither spent nor returned is lost.
	Errands, Leased, Spent, Returned int64
	// Alone counts calls that the home decided because the region's Redis did not answer.
	Alone int64
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
		Calls: c.calls.Load(), Failed: c.failed.Load(), Errands: c.errands.Load(), Leased: c.leased.Load(), Spent: c.spent.Load(),
		Returned: c.returned.Load(), Alone: c.alone.Load(),
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	s.Way, s.Up, s.Address = h.way, !h.lost, h.address
	if h.lost {
		s.Since = h.first
	}
	return s
}
