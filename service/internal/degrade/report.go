package degrade

import (
	"time"

	"example.com/sash/failover"
)

// A Report is the state of a service's store, for its operators.
type Report struct {
	Health
	// Since is when the store went down, came back or was forced; zero when none of these happened since the start.
	Since time.Time
	// Forced is the state that an operator forced; nil is none.
	Forced *failover.Forced
	// Stats are those of the store that answers while Redis does not.
	Stats failover.Stats
}

// Report returns the state now. It sends nothing.
func (g *Guard) Report() Report {
	r := Report{Health: g.Health(), Stats: g.Store.Stats()}
	if f, ok := g.Store.Forced(); ok {
		r.Forced, r.Since = &f, f.Since
		return r
	}
	g.outages.mu.Lock()
	defer g.outages.mu.Unlock()
	if r.Since = g.outages.since; r.Since.IsZero() {
		r.Since = g.outages.back
	}
	return r
}
