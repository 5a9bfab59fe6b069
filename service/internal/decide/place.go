package decide

import (
	"context"
	"slices"

	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/service/internal/config"
)

// Stores returns the store of a place: the same one whenever it is asked for that place. It is called when a configuration
// is used, for every rule, and when reservations are settled. The error says why there is no such store.
type Stores func(config.Place) (driver.Store, error)

// storeBy returns the store of a place with failure modes, if it has any, of which those of a limit over all regions are
// closed in place of local.
func (d *Decider) storeBy(place config.Place, modes failover.Modes) (driver.Store, error) {
	store, err := d.stores(place)
	if err != nil {
		return nil, err
	}
	if place.Global { // an instance has no share of a limit over all regions, and a region's own is part of the store
		modes.Rules = slices.Clone(modes.Rules)
		for i := range modes.Rules {
			if modes.Rules[i].Mode == failover.Local {
				modes.Rules[i].Mode = failover.Closed
			}
		}
	}
	if store, ok := store.(*failover.Store); ok {
		return store.With(modes)
	}
	return store, nil
}

// closed returns the store of a place without an answer of its own while it is unavailable.
func (d *Decider) closed(place config.Place) (driver.Store, error) {
	return d.storeBy(place, failover.Modes{})
}

// apart is a store over the stores of several places. A request goes to the store of its policy: compiled limits have a
// policy of their own. It has no DecideAll over several places: each step of a decision is of one place.
type apart struct {
	stores map[*driver.Policy]driver.Store
	first  driver.Store
	// leased are the subjects that are asked for leased units. A look at them before they are charged would take a trip to
	// the home.
	leased map[subject]bool
}

// A subject is a key under a policy.
type subject struct {
	key    string
	policy *driver.Policy
}

var (
	_ driver.MultiStore = (*apart)(nil)
	_ driver.Settler    = (*apart)(nil)
)

func (a *apart) of(policy *driver.Policy) driver.Store {
	if store := a.stores[policy]; store != nil {
		return store
	}
	return a.first
}

// Decide implements [driver.Store].
func (a *apart) Decide(ctx context.Context, req driver.Request) (driver.Answer, error) {
	if req.Cost == 0 && a.leased[subject{req.Key, req.Policy}] {
		return hopeful(req.Policy), nil
	}
	return a.of(req.Policy).Decide(ctx, req)
}

// hopeful returns an answer with all units left, to a look that only saves a charge that is given back.
func hopeful(policy *driver.Policy) driver.Answer {
	statuses := make([]driver.Status, len(policy.Limits))
	for i := range statuses {
		statuses[i].Remaining = policy.Limits[i].Units
	}
	return driver.NewAnswer(0, 0, statuses)
}

// DecideAll implements [driver.MultiStore].
func (a *apart) DecideAll(ctx context.Context, reqs []driver.Request) ([]driver.Answer, error) {
	store, ok := a.of(reqs[0].Policy).(driver.MultiStore)
	if !ok {
		return nil, driver.ErrApart
	}
	return store.DecideAll(ctx, reqs)
}

// Settle implements [driver.Settler].
func (a *apart) Settle(ctx context.Context, sets ...driver.Settlement) error {
	for _, set := range sets[1:] {
		if a.of(set.Request.Policy) != a.of(sets[0].Request.Policy) {
			return driver.ErrApart
		}
	}
	store, ok := a.of(sets[0].Request.Policy).(driver.Settler)
	if !ok {
		return driver.ErrUnsupported
	}
	return store.Settle(ctx, sets...)
}
