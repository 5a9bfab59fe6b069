package degrade

import (
	"maps"
	"slices"
	"time"

	"example.com/sash/failover"
	"example.com/sash/memstore"
)

// A Report is the state of a service's store, for its operators.
type Report struct {
	Health
	// Address is where the store is, without the password; empty in memory.
	Address string
	// Since is when the store went down, came back, or became full; zero when none of these happened since
	// the start.
	Since time.Time
	// Err is the last failure; nil while the store is up.
	Err error
	// Uncounted is how many requests went ahead that nothing counts: since Since while the store is down, and otherwise in
	// the last outage.
	Uncounted int64
	// Memory is how full the store in memory is: the service's own, or that of mode local.
	Memory *memstore.Stats
	// Homes is what is known of the stores that all regions share, by their names.
	Homes []HomeStats
	// Stats are those of the store that answers while Redis does not.
	Stats failover.Stats
}

// Report returns the state now. It sends nothing.
func (g *Guard) Report() Report {
	memory := g.local.store.Stats()
	r := Report{Health: g.Health(), Address: g.address, Stats: g.stats(), Memory: &memory}
	for _, name := range slices.Sorted(maps.Keys(g.homes)) {
		home := g.homes[name].Stats()
		home.Name = name
		r.Homes = append(r.Homes, home)
	}
	o := g.outages
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.since.IsZero() {
		r.Since, r.Uncounted = o.back, o.during
	} else {
		r.Since, r.Err, r.Uncounted = o.since, o.why, o.uncounted()-o.before
	}
	return r
}
