package degrade

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/lease"
	"example.com/sash/memstore"
	"example.com/sash/service/internal/config"
	"example.com/sash/stack"
)

// places are the stores of rules that lease units, or whose charges the home keeps. They stay until the service ends,
// because reservations that were made by them are settled by them.
//
//	lease:          failover -> denial cache -> lease -> group commit -> Redis
//	scope: global:  failover -> denial cache -> lease -> group commit -> home
//	                                         \--> the region's Redis, which holds the leases and counts the own share
type places struct {
	redis  driver.Store      // behind group commit
	home   *far              // nil is none
	region *failover.Options // of rules of the region; Local is that of each store
	memory memstore.Options  // of mode local

	mu   sync.Mutex
	made map[config.Place]*placed // guarded by mu
}

// A far is a home, with the leases of this region of its units.
type far struct {
	store    driver.Store // behind group commit
	holder   driver.Holder
	opts     failover.Options
	patience time.Duration // the longest time that the home has to lease units
}

// A placed is the store of a place.
type placed struct {
	*failover.Store
	leases *lease.Store // nil without
}

// mostPlaces bounds the stores of a process: one for each scope and lease that its configurations have had.
const mostPlaces = 256

// Place returns the store of a place: see decide.Stores.
func (g *Guard) Place(p config.Place) (driver.Store, error) {
	if p == (config.Place{}) {
		return g.Store, nil
	}
	g.places.mu.Lock()
	defer g.places.mu.Unlock()
	if made := g.places.made[p]; made != nil {
		return made.Store, nil
	}
	if len(g.places.made) >= mostPlaces {
		return nil, fmt.Errorf("this service has had rules with %d different leases: restart it", mostPlaces)
	}
	made, err := g.places.open(p)
	if err != nil {
		return nil, err
	}
	g.places.made[p] = made
	return made.Store, nil
}

// open makes the store of a place. The caller holds mu.
func (s *places) open(p config.Place) (*placed, error) {
	made, behind, opts := &placed{}, s.redis, *s.region
	opts.Local = memstore.New(&s.memory)
	if p.Global {
		if s.home == nil {
			return nil, config.ErrNoHome
		}
		behind, opts = s.home.store, s.home.opts
	}
	var err error
	switch {
	case p.Lease == 0:
		opts.Blip = 0 // no region holds units of it: there is nothing to spend while the home is away
	case p.Global:
		made.leases, err = s.shared(p, &opts)
	default:
		made.leases, err = lease.New(behind, p.Lease)
	}
	if err != nil {
		return nil, err
	}
	if made.leases != nil {
		behind = made.leases
	}
	made.Store, err = failover.New(stack.DenialCache(behind), &opts)
	return made, err
}

// shared returns a store that leases the home's units. With an own share a call has time for the home, and then for that.
func (s *places) shared(p config.Place, opts *failover.Options) (*lease.Store, error) {
	home := s.home
	options := &lease.Options{Within: home.patience}
	if p.Own.Regions > 0 {
		near := stack.DenialCache(&punctual{driver.Passthrough{Next: s.redis}, s.region.Budget})
		options.Own = &lease.Own{Regions: p.Own.Regions, Percent: p.Own.Percent, Store: near}
		opts.Budget = home.patience + 2*s.region.Budget // the leases, and the own share
	}
	return lease.Shared(home.store, home.holder, p.Lease, options)
}

// punctual is the region's Redis with its budget for each decision on the own share.
type punctual struct {
	driver.Passthrough
	budget time.Duration
}

// Decide implements [driver.Store].
func (p *punctual) Decide(ctx context.Context, req driver.Request) (driver.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, p.budget)
	defer cancel()
	return p.Passthrough.Decide(ctx, req)
}

// all returns the stores of all places.
func (s *places) all() []*placed {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.made))
}

// close writes what was admitted locally, and then gives back what is leased. Failed is the first error of the one, and kept
// that of the other: units that stay charged until they leave the window.
func (s *places) close(ctx context.Context) (failed, kept error) {
	for _, p := range s.all() {
		if err := p.Close(ctx); failed == nil {
			failed = err
		}
	}
	var group errgroup.Group
	for _, p := range s.all() {
		if p.leases != nil {
			group.Go(func() error { return p.leases.Release(ctx) })
		}
	}
	return failed, group.Wait()
}

// never is a Blip that no failure lasts for. Where units are leased the home's breaker is in package lease: while the home is
// away, units that this region holds are still spent.
const never = time.Duration(math.MaxInt64 / 8)

// newPlaces returns the places over a Redis. Behind are the options of its own failover.
func (g *Guard) newPlaces(redis driver.Store, holder driver.Holder, opts *Options, behind failover.Options) *places {
	s := &places{redis: redis, region: &behind, memory: opts.Local, made: make(map[config.Place]*placed)}
	budget := cmp.Or(opts.Budget, failover.DefaultBudget)
	behind.Budget = budget
	if home := opts.Home; home != nil {
		s.home = &far{
			store:  stack.GroupCommit(home.Store),
			holder: &region{next: holder, budget: budget, up: func() bool { return g.Store.State() == failover.Up }, counts: &home.counts},
			opts: failover.Options{
				Budget: budget + home.budget, // the region's Redis is asked first
				Blip:   never, OpenPerSecond: opts.OpenPerSecond, Classify: behind.Classify,
				OnError: func(err error, _ failover.Kind) { opts.Failed(err) },
			},
			patience: home.budget,
		}
	}
	return s
}
