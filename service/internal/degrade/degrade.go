// Package degrade makes the store on which sash serve decides: Redis, with failure modes while Redis is unavailable.
//
//	failover (budget, breaker, failure modes) -> denial cache -> group commit -> Redis
package degrade

import (
	"cmp"
	"context"
	secret "crypto/rand"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/memstore"
	"example.com/sash/redisstore"
	"example.com/sash/service/internal/cause"
	"example.com/sash/service/internal/throttle"
	"example.com/sash/stack"
)

// Options for New. The zero value is the default.
type Options struct {
	Budget        time.Duration // that Redis has for one decision; zero is failover.DefaultBudget
	OpenPerSecond int64         // the most units that on_unavailable: open lets through; zero is all
	// Instances is the least number of processes that share the limits. It holds alone until Redis has counted their
	// heart-beats. If it is zero, mode local admits nothing until then.
	Instances int
	Cluster   bool             // keys are spread over the nodes of a Redis Cluster, which can fail by themselves
	Address   string           // of Redis, without the password, for operators
	Uncounted func() int64     // returns how many requests went ahead uncounted so far; nil is none
	Home      *Home            // the store that all regions share, for rules with scope: global; nil is none
	Local     memstore.Options // for the store of mode local
	Failed    func(error)      // called with the error of every call that Redis did not decide; must not block
	Log       *slog.Logger     // for outages and misconfigurations of Redis; nil is slog.Default
}

// A Guard is a store with its state, for operators.
type Guard struct {
	// Store answers no call while Redis is unavailable. Its With returns stores that then apply the failure modes of rules.
	Store   *failover.Store
	places  *places
	home    *Home // nil is none
	address string
	fleet   *fleet
	outages *outages
	local   *occupancy
	log     *slog.Logger
}

// New returns a guard over a store on Redis, which stays the caller's. It does no I/O, so Redis may be down.
func New(redis *redisstore.Store, opts Options) (*Guard, error) {
	opts.Log = cmp.Or(opts.Log, slog.Default())
	g := &Guard{log: opts.Log, address: opts.Address, fleet: &fleet{floor: opts.Instances, log: opts.Log}, home: opts.Home}
	g.outages = newOutages(&opts, "Redis is down: calls are answered by the failure mode of their rule (on_unavailable)", "Redis is back")
	id := secret.Text()
	g.fleet.beat = func(ctx context.Context) (int, error) { return redis.Instances(ctx, "serve", id, lives) }
	joined := stack.GroupCommit(redis)
	local := memstore.New(&opts.Local)
	g.local = newOccupancy(local, "what mode local knows of Redis", opts.Log)
	behind := &failover.Options{
		Budget:        opts.Budget,
		OpenPerSecond: opts.OpenPerSecond,
		Local:         local,
		Instances:     g.fleet.instances,
		Classify:      failover.ClassifyBy(redisstore.Uncharged, redisstore.Misconfigured),
		OnChange:      g.outages.change,
		OnError:       g.outages.failure,
	}
	if opts.Cluster {
		behind.Parts = parts
		behind.Part = func(key string, policy *driver.Policy) int { return redis.Slot(key, policy) * parts / slots }
	}
	var err error
	if g.Store, err = failover.New(stack.DenialCache(joined), behind); err != nil {
		return nil, err
	}
	g.places = g.newPlaces(joined, redis, &opts, *behind)
	return g, nil
}

// A part is a short run of slots. Few parts lie on two nodes, and the guard needs no map of the nodes.
const (
	slots = 16384
	parts = 64
)

// Run counts instances, and probes Redis while no caller uses it, until the context ends. It returns nil.
func (g *Guard) Run(ctx context.Context) error {
	var group sync.WaitGroup
	group.Go(func() { probe(ctx, g.Store) })
	group.Go(func() { g.local.run(ctx) })
	group.Go(func() { g.fleet.run(ctx) })
	if g.home != nil {
		group.Go(func() { probe(ctx, g.home.watch) })
	}
	group.Wait()
	return nil
}

// The pauses between probes of a store that nobody calls. Each pause is half to all of this time.
const (
	idle   = 2 * time.Second
	absent = time.Second
)

// probe probes the parts of a store that no call reaches, so that their state is right without traffic.
func probe(ctx context.Context, store *failover.Store) {
	throttle.Repeat(ctx, func() time.Duration {
		pause := idle
		if err := store.Probe(ctx); err != nil { // OnError and OnChange log it
			pause = absent
		}
		return pause/2 + rand.N(pause/2)
	})
}

// closing bounds Close. It is part of the time that an orchestrator gives a service to end.
const closing = 5 * time.Second

// Close writes to Redis the units that mode local admitted and Redis does not count yet. It tries for a few seconds,
// and logs how many were written and lost. The service must not decide any more.
func (g *Guard) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), closing)
	defer cancel()
	before := g.stats()
	err := g.Store.Close(ctx)
	failed, kept := g.places.close(ctx)
	err = errors.Join(err, failed)
	if kept != nil {
		g.log.Warn("not all leased units could be given back: they stay charged until they leave the window", "error", kept)
	}
	after := g.stats()
	units := []any{"written", after.Written - before.Written, "lost", after.Lost - before.Lost, "doubtful", after.Doubtful - before.Doubtful}
	switch {
	case err != nil:
		g.log.Warn("Redis does not count all units that were admitted locally", units...)
	case after.Written > before.Written:
		g.log.Info("Redis counts the units that were admitted locally", units...)
	}
}

func (g *Guard) stats() failover.Stats {
	sum := g.Store.Stats()
	for _, p := range g.places.all() {
		s := p.Stats()
		sum.InFlight += s.InFlight
		sum.Backlog += s.Backlog
		sum.Written += s.Written
		sum.Lost += s.Lost
		sum.Doubtful += s.Doubtful
	}
	return sum
}

// A Health is the state of a service. It is degraded while Redis, or a part of a Cluster, takes no charges, and while
// a store in memory is full. A degraded service answers by failure modes, and restarting it would not help.
type Health struct {
	Status    string  `json:"status"`                // ok, degraded or Draining
	Store     string  `json:"store"`                 // up, down, probing, or memory
	Cause     string  `json:"cause,omitempty"`       // why it is not up: see package cause
	Home      string  `json:"home,omitempty"`        // up or down; empty without one
	Instances int     `json:"instances"`             // how many share the limits; 0 while that is not known
	Memory    float64 `json:"memory_used,omitempty"` // the share of its bytes that a store in memory uses, in hundredths
}

// Draining is the status of a service that is about to stop.
const Draining = "draining"

// Health returns the state now. It sends nothing.
func (g *Guard) Health() Health {
	h := Health{Status: "ok", Store: g.Store.State().String(), Instances: g.fleet.instances()}
	if g.Store.State() != failover.Up {
		h.Status, h.Cause = "degraded", g.outages.cause()
	}
	switch {
	case g.home == nil:
	case g.home.Stats().Up:
		h.Home = "up"
	default:
		if h.Home = "down"; h.Status == "ok" {
			h.Status, h.Cause = "degraded", g.home.outages.cause()
		}
	}
	return h
}

const (
	every    = 5 * time.Second // the longest time between two heart-beats; half of it is the shortest
	lives    = 3 * every       // how long an instance counts after a heart-beat
	patience = time.Second     // with the answer to a heart-beat
)

// A fleet is the number of instances that share the limits: the number that heart-beats count, but at least the
// configured floor. An instance that starts while Redis is down knows of no other.
//
// The greatest recent number counts, because a Redis that has lost its state knows few instances until all have called.
type fleet struct {
	floor int // 0 if no number was given
	beat  func(context.Context) (int, error)
	log   *slog.Logger
	count atomic.Int64
	seen  []sighting // used by run alone
}

// A sighting is a number of instances, and when it was seen.
type sighting struct {
	at time.Time
	n  int
}

func (f *fleet) instances() int { return max(f.floor, int(f.count.Load())) }

// run sends heart-beats until the context ends. The random pauses spread instances that start together.
func (f *fleet) run(ctx context.Context) {
	throttle.Repeat(ctx, func() time.Duration { f.once(ctx); return every/2 + rand.N(every/2) })
}

func (f *fleet) once(ctx context.Context) {
	timed, cancel := context.WithTimeout(ctx, patience)
	n, err := f.beat(timed)
	cancel()
	switch {
	case err == nil:
		f.note(time.Now(), n)
	case ctx.Err() != nil:
	case f.instances() == 0:
		f.log.Warn("the number of instances is not known: rules with on_unavailable: local admit nothing until Redis has counted them; --instances sets the number until then", "error", err)
	default:
		f.log.Debug("a heart-beat failed", "error", err)
		f.note(time.Now(), int(f.count.Load())) // the number holds for a while after the failure
	}
}

func (f *fleet) note(now time.Time, n int) {
	greatest := n
	kept := []sighting{{now, n}}
	for _, s := range f.seen {
		if now.Sub(s.at) < lives {
			kept = append(kept, s)
			greatest = max(greatest, s.n)
		}
	}
	f.seen = kept
	f.count.Store(int64(greatest))
}

// outages logs when a Redis goes down and comes back. At intervals, it also logs a failure that needs an operator.
type outages struct {
	down, again   string // messages in the log
	log           *slog.Logger
	failed        func(error)
	misconfigured throttle.Log
	rejected      throttle.Log

	uncounted func() int64 // the number so far

	mu     sync.Mutex
	since  time.Time // guarded by mu: when it went down; zero while it is up
	back   time.Time // guarded by mu: when it last came back; zero is never
	why    error     // guarded by mu: the last failure; nil is none
	whyAt  time.Time // guarded by mu
	before int64     // guarded by mu: uncounted before the failures that took it down
	during int64     // guarded by mu: uncounted in the last outage
}

func newOutages(opts *Options, down, again string) *outages {
	const every = 10 * time.Second
	o := &outages{
		down: down, again: again, log: opts.Log, failed: opts.Failed, uncounted: opts.Uncounted,
		misconfigured: throttle.Log{To: opts.Log, Every: every}, rejected: throttle.Log{To: opts.Log, Every: every},
	}
	if o.failed == nil {
		o.failed = func(error) {}
	}
	if o.uncounted == nil {
		o.uncounted = func() int64 { return 0 }
	}
	return o
}

// newEpisode is the time without a failure that separates two outages. The failures that take Redis down are closer together.
const newEpisode = 2 * time.Second

// fails records a failure. The caller holds mu.
func (o *outages) fails() {
	now := time.Now()
	if o.since.IsZero() && now.Sub(o.whyAt) > newEpisode {
		o.before = o.uncounted()
	}
	o.whyAt = now
}

// change logs a change of the breaker. Every failed probe is also a change, so change logs only the first.
func (o *outages) change(now failover.State, cause error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case now == failover.Down && o.since.IsZero():
		o.fails()
		o.since = time.Now()
		o.log.Warn(o.down, "state", now.String(), "cause", cause)
	case now == failover.Up && !o.since.IsZero():
		o.log.Info(o.again, "state", now.String(), "after", time.Since(o.since).Round(time.Millisecond))
		o.since, o.back, o.during = time.Time{}, time.Now(), o.uncounted()-o.before
	default:
		o.log.Debug("Redis", "state", now.String(), "cause", cause)
	}
}

func (o *outages) failure(err error, kind failover.Kind) {
	o.failed(err)
	if errors.Is(err, driver.ErrRejected) {
		o.rejected.Log(slog.LevelError, "Redis works and rejects calls on one key; other keys are decided: see sash inspect", "error", err)
		return
	}
	o.mu.Lock()
	o.fails()
	o.why = err
	o.mu.Unlock()
	if kind != failover.Misconfigured && !redisstore.Misconfigured(err) {
		o.log.Debug("Redis failed", "error", err)
		return
	}
	o.misconfigured.Log(slog.LevelError, "Redis rejects this service's calls until an operator corrects its configuration: see sash doctor", "error", err)
}

func (o *outages) cause() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.why == nil {
		return ""
	}
	return cause.Of(o.why)
}

// A Report is the state of a service's store, for its operators.
type Report struct {
	Health
	Address   string          // without the password; empty in memory
	Since     time.Time       // when the store went down, came back, or became full; zero if it has done none of these
	Err       error           // the last failure; nil while the store is up
	Uncounted int64           // requests that went ahead uncounted in this outage, or in the last one
	Memory    *memstore.Stats // how full the store in memory is: the service's own, or that of mode local
	Home      *HomeStats      // nil without one
	Stats     failover.Stats  // from the store that answers while Redis does not
}

// Report returns the state now. It sends nothing.
func (g *Guard) Report() Report {
	memory := g.local.store.Stats()
	r := Report{Health: g.Health(), Address: g.address, Stats: g.stats(), Memory: &memory}
	if g.home != nil {
		home := g.home.Stats()
		r.Home = &home
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
