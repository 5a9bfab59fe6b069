package degrade

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/internal/apart"
	"example.com/sash/lease"
	"example.com/sash/memstore"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/throttle"
	"example.com/sash/stack"
)

// places are the stores of rules that lease units or whose charges the home keeps. They stay until the service ends,
// because the store that made a reservation settles it.
//
//	lease:          failover -> denial cache -> lease -> group commit -> Redis
//	scope: global:  failover -> denial cache -> lease -> group commit -> home
//	                                         \--> the region's Redis, which holds the leases and counts the own share
type places struct {
	redis  driver.Store      // behind group commit
	region *failover.Options // for rules of the region; each store gets its own Local
	memory memstore.Options  // for mode local

	home   *Home            // nil is none
	far    driver.Store     // the home, behind group commit
	holder lease.Holder     // holds this region's leases of the home's units
	global failover.Options // for rules of all regions

	mu   sync.Mutex
	made map[config.Place]*placed // guarded by mu
}

type placed struct {
	*failover.Store
	leases *lease.Store // nil without a lease
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
		behind, opts = s.far, s.global
	}
	var err error
	switch {
	case p.Lease == 0:
		opts.Blip = 0 // no region holds leased units, so there is nothing to spend while the home is away
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

// shared returns a store that leases the home's units. With an own share, a call has time for the home and then for the own share.
func (s *places) shared(p config.Place, opts *failover.Options) (*lease.Store, error) {
	options := &lease.Options{Within: s.home.budget}
	if p.Own.Regions > 0 {
		near := stack.DenialCache(&punctual{driver.Passthrough{Store: s.redis}, s.region.Budget})
		options.Own = &lease.Own{Regions: p.Own.Regions, Percent: p.Own.Percent, Store: near}
		opts.Budget = s.home.budget + 2*s.region.Budget // the leases, and the own share
	}
	return lease.Shared(s.far, s.holder, p.Lease, options)
}

// punctual is the region's Redis with a budget for each decision on the own share.
type punctual struct {
	driver.Passthrough
	budget time.Duration
}

func (p *punctual) Do(ctx context.Context, b *driver.Batch) error {
	if b.Ops[0].Kind == driver.Charge {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, p.budget)
		defer cancel()
	}
	return p.Store.Do(ctx, b)
}

func (s *places) all() []*placed {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.made))
}

// close writes what was admitted locally, and then gives leased units back. Failed is the first error of the writes.
// Kept is the first error of giving back: those units stay charged until they leave the window.
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

// never is a Blip that no failure outlasts: while the home is away, this region still spends the units that it leased.
const never = time.Duration(math.MaxInt64 / 8)

// newPlaces returns the places over a Redis. Behind are the options of the failover store for that Redis.
func (g *Guard) newPlaces(redis driver.Store, holder lease.Holder, opts *Options, behind failover.Options) *places {
	s := &places{redis: redis, region: &behind, memory: opts.Local, made: make(map[config.Place]*placed)}
	budget := cmp.Or(opts.Budget, failover.DefaultBudget)
	behind.Budget = budget
	if home := opts.Home; home != nil {
		s.home, s.far = home, stack.GroupCommit(home.Store)
		s.holder = &region{next: holder, budget: budget, up: func() bool { return g.Store.State() == failover.Up }, counts: &home.counts}
		s.global = failover.Options{
			Budget: budget + home.budget, // the region's Redis is asked first
			Blip:   never, OpenPerSecond: opts.OpenPerSecond, Classify: behind.Classify,
			OnError: func(err error, _ failover.Kind) { opts.Failed(err) },
		}
	}
	return s
}

// A Home is the store that all regions share, for rules with scope: global. NewHome makes one.
type Home struct {
	// Store decides. NewHome sets it to the store that it probes.
	Store driver.Store

	address string // without the password
	budget  time.Duration
	watch   *failover.Store // receives the probes
	outages *outages        // seen by probes
	counts  counts
}

// lostAfter is how long the home may fail before it counts as lost.
const lostAfter = time.Second

// NewHome returns a home over a store, and probes the store to watch it. Budget is the time that the home has for one decision.
func NewHome(address string, budget time.Duration, store driver.Store, log *slog.Logger) (*Home, error) {
	h := &Home{Store: store, address: address, budget: budget}
	h.outages = newOutages(&Options{Log: log.With("home", address)},
		"the home does not answer: rules with scope: global go on with units that this region has leased, and then by on_unavailable",
		"the home answers again: rules with scope: global are decided")
	var err error
	opts := failover.Options{Budget: budget, Blip: lostAfter, OnChange: h.outages.change, OnError: h.outages.failure}
	h.watch, err = failover.New(store, &opts)
	return h, err
}

// Note counts a call to the home: as failed if there is an error, and otherwise as answered. It may be called concurrently.
func (h *Home) Note(err error) {
	h.counts.calls.Add(1)
	if err != nil {
		h.counts.failed.Add(1)
	}
}

// HomeStats are counts since the start, and the present state of the home.
type HomeStats struct {
	Calls, Failed int64 // calls of this process to the home, and those without an answer
	// Leased units came from the home. Spent units were spent by calls here, whichever instance leased them. Returned
	// units went back unspent. Over all instances of a region, leased units that were neither spent nor returned are lost.
	Leased, Spent, Returned int64
	Up                      bool      // the home answers probes
	Address                 string    // without the password
	Since                   time.Time // when it stopped answering; zero while it is up
}

// Stats returns the counts.
func (h *Home) Stats() HomeStats {
	c, o := &h.counts, h.outages
	o.mu.Lock()
	defer o.mu.Unlock()
	return HomeStats{
		Calls: c.calls.Load(), Failed: c.failed.Load(), Leased: c.leased.Load(), Spent: c.spent.Load(), Returned: c.returned.Load(),
		Up: o.since.IsZero(), Address: h.address, Since: o.since,
	}
}

// A region is the holder of leases on the region's Redis, within the budget of that Redis. If the Redis does not answer a call,
// the home alone decides it: more slowly, but as exactly. Units that a late answer spent are lost, so fewer calls are admitted.
type region struct {
	next   lease.Holder
	budget time.Duration
	up     func() bool // whether the region's Redis is known to answer: otherwise calls avoid it
	counts *counts
}

// counts are what a service did at its home and with leases.
type counts struct {
	calls, failed, leased, spent, returned atomic.Int64
}

// Spend implements [lease.Holder]. Its only errors are the context's.
func (r *region) Spend(ctx context.Context, s lease.Spending) (lease.Held, error) {
	if !r.up() {
		return lease.Held{Alone: true}, nil
	}
	held, err := within(ctx, r, func(ctx context.Context) (lease.Held, error) { return r.next.Spend(ctx, s) })
	switch {
	case ctx.Err() != nil:
		return lease.Held{}, ctx.Err()
	case err != nil:
		return lease.Held{Alone: true}, nil //nolint:nilerr // the home decides the call
	case held.Spent:
		r.counts.spent.Add(s.Cost)
	}
	return held, nil
}

// Bring implements [lease.Holder].
func (r *region) Bring(ctx context.Context, e lease.Fetch) (bool, error) {
	kept, err := within(ctx, r, func(ctx context.Context) (bool, error) { return r.next.Bring(ctx, e) })
	if kept {
		r.counts.leased.Add(e.Units)
	}
	return kept, err
}

func (r *region) Return(ctx context.Context, key string, began, keep int64) (int64, error) {
	units, err := within(ctx, r, func(ctx context.Context) (int64, error) { return r.next.Return(ctx, key, began, keep) })
	r.counts.returned.Add(units)
	return units, err
}

func (r *region) Forget(ctx context.Context, key string) error {
	_, err := within(ctx, r, func(ctx context.Context) (struct{}, error) { return struct{}{}, r.next.Forget(ctx, key) })
	return err
}

// within calls the region's Redis, for the budget at most. A late call continues until the client gives up its connection.
func within[T any](ctx context.Context, r *region, f func(context.Context) (T, error)) (T, error) {
	timed, cancel := context.WithTimeout(ctx, r.budget)
	defer cancel()
	value, err := apart.Outlive(timed, nil, f, func(T) {})
	if timed.Err() != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		err = failover.ErrBudget
	}
	return value, err
}

// A Memory is the store of a service without Redis. While it is full, it decides no new subject, whatever on_unavailable says.
type Memory struct {
	*memstore.Store
	occupancy *occupancy

	mu     sync.Mutex
	leased map[time.Duration]driver.Store // guarded by mu: for rules with a lease
}

// NewMemory returns an empty store. A nil log is slog.Default.
func NewMemory(opts memstore.Options, log *slog.Logger) *Memory {
	store := memstore.New(&opts)
	return &Memory{Store: store, occupancy: newOccupancy(store, "every subject", cmp.Or(log, slog.Default())), leased: make(map[time.Duration]driver.Store)}
}

// Place returns the store of a place: see decide.Stores. A lease saves nothing in one process's memory. It still
// makes windows longer, as everywhere, for units that are spent later than they are charged.
func (m *Memory) Place(p config.Place) (store driver.Store, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch store = m.leased[p.Lease]; {
	case p.Global:
		return nil, config.ErrNoHome
	case p.Lease == 0:
		return m.Store, nil
	case store == nil:
		if store, err = lease.New(m.Store, p.Lease); err == nil {
			m.leased[p.Lease] = store
		}
	}
	return store, err
}

// Run watches how full the store is, until the context ends. It returns nil.
func (m *Memory) Run(ctx context.Context) error {
	m.occupancy.run(ctx)
	return nil
}

// Health returns the state now: degraded while the store is full.
func (m *Memory) Health() Health { return m.Report().Health }

// Report returns the state now.
func (m *Memory) Report() Report {
	occupancy := m.Store.Stats()
	r := Report{Health: MemoryHealth(), Memory: &occupancy}
	r.Health.Memory = math.Round(100*float64(occupancy.Bytes)/float64(occupancy.MaxBytes)) / 100
	if r.Since = m.occupancy.look(); !r.Since.IsZero() {
		r.Status, r.Cause = "degraded", "full"
	}
	return r
}

// MemoryHealth is the health of a service whose store is its own memory with room left.
func MemoryHealth() Health { return Health{Status: "ok", Store: "memory", Instances: 1} }

const (
	fullFor        = time.Minute // since a store last evicted a subject or turned one away
	occupancyEvery = time.Second
)

// An occupancy watches how full a store in memory is, for the log and for health.
type occupancy struct {
	store *memstore.Store
	holds string // what the store holds, for the log
	full  throttle.Log

	mu    sync.Mutex
	seen  memstore.Stats // guarded by mu: at the last look
	at    time.Time      // guarded by mu: when it was last full; zero is never
	since time.Time      // guarded by mu: since when it has been full
}

func newOccupancy(store *memstore.Store, holds string, log *slog.Logger) *occupancy {
	return &occupancy{store: store, holds: holds, full: throttle.Log{To: log, Every: fullFor}}
}

func (o *occupancy) run(ctx context.Context) {
	throttle.Repeat(ctx, func() time.Duration { o.look(); return occupancyEvery })
}

// look logs what has changed. It returns since when the store has been full, or the zero time if it is not.
func (o *occupancy) look() (since time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now, is := time.Now(), o.store.Stats()
	if is.Evicted != o.seen.Evicted || is.TurnedAway != o.seen.TurnedAway {
		if o.at.IsZero() || now.Sub(o.at) > fullFor {
			o.since = now
		}
		o.at = now
		o.full.Log(slog.LevelWarn, "the store in memory is full: raise --memory-max-bytes, or find who brings so many subjects, IDs or bookings",
			"holds", o.holds, "subjects", is.Keys, "bytes", is.Bytes, "max_bytes", is.MaxBytes, "evicted", is.Evicted, "turned_away", is.TurnedAway)
	}
	o.seen = is
	if o.at.IsZero() || now.Sub(o.at) > fullFor {
		return time.Time{}
	}
	return o.since
}
