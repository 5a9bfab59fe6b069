package degrade

import (
	"time"

	"example.com/sash/failover"
)

// A Report is what those who run a service want to know of its store.
type Report struct {
	Health
	// Since is when the store went down or came back; zero is not since the start.
	Since time.Time
	// Stats are those of the store that answers while Redis does not.
	Stats failover.Stats
}

// Report returns the state now. It asks nobody.
func (g *Guard) Report() Report {
	r := Report{Health: g.Health(), Stats: g.Store.Stats()}
	g.told.mu.Lock()
	defer g.told.mu.Unlock()
	if r.Since = g.told.since; r.Since.IsZero() {
		r.Since = g.told.back
	}
	return r
}
