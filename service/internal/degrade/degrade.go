// Package degrade makes the store that sash serve decides on: Redis, and answers by each rule's failure modes while
// that is unavailable.
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
	"example.com/sash/stack"
)

// Options for New. The zero value is the default.
type Options struct {
	// Budget is the most time that Redis gets for one decision. Zero is failover.DefaultBudget.
	Budget time.Duration
	// OpenPerSecond is the most units that this instance lets through in a second by on_unavailable: open. Zero is all.
	OpenPerSecond int64
	// Instances is the least number of processes that share the limits. Heart-beats on Redis count them, and until
	// Redis has counted this number holds. If it is zero too, mode local admits nothing until then.
	Instances int
	// Cluster says that keys are spread over the nodes of a Redis Cluster, which can fail by themselves.
	Cluster bool
	// Address is where Redis is, for operators, without the password.
	Address string
	// Uncounted returns how many requests went ahead so far that nothing counts. Nil is none.
	Uncounted func() int64
	// Home is the store that all regions share, for rules with scope: global. Nil is none.
	Home *Home
	// Local is the size of the store of mode local, and what happens when it is full.
	Local memstore.Options
	// Failed is called with the error of every call that Redis did not decide. It must not block. Nil is not called.
	Failed func(error)
	// Log gets outages and misconfigurations of Redis. Nil is slog.Default.
	Log *slog.Logger
}

// A Guard is a store with its state, for operators.
type Guard struct {
	// Store answers no call while Redis is unavailable; its With makes those with the failure modes of rules.
	Store   *failover.Store
	places  *places
	home    *Home // nil is none
	address string
	fleet   *fleet
	outages *outages
	local   *occupancy
	log     *slog.Logger
}

// New returns a guard before a store on Redis, which stays the caller's. It does no I/O: a service can start
// while Redis is not there.
func New(redis *redisstore.Store, opts Options) (*Guard, error) {
	opts.Log = cmp.Or(opts.Log, slog.Default())
	if opts.Failed == nil {
		opts.Failed = func(error) {}
	}
	if opts.Uncounted == nil {
		opts.Uncounted = func() int64 { return 0 }
	}
	g := &Guard{log: opts.Log, address: opts.Address, outages: newOutages(&opts), fleet: &fleet{floor: opts.Instances, log: opts.Log}, home: opts.Home}
	id := secret.Text()
	g.fleet.beat = func(ctx context.Context) (int, error) { return redis.Instances(ctx, "serve", id, lives) }
	part := func(string, *driver.Policy) int { return 0 }
	if opts.Cluster {
		part = func(key string, policy *driver.Policy) int { return redis.Slot(key, policy) * parts / slots }
	}
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
		behind.Part = part
	}
	var err error
	if g.Store, err = failover.New(stack.DenialCache(joined), behind); err != nil {
		return nil, err
	}
	g.places = g.newPlaces(joined, redis, &opts, *behind)
	return g, nil
}

// The nodes of a Cluster have runs of slots until slots are moved, and a part is a short run: few parts lie on two
// nodes, and no map of the nodes has to be kept.
const (
	slots = 16384
	parts = 64
)

// Run counts instances, and asks Redis when no caller does, until the context ends. It returns nil.
func (g *Guard) Run(ctx context.Context) error {
	var group sync.WaitGroup
	group.Go(func() { probe(ctx, g.Store) })
	group.Go(func() { g.local.run(ctx) })
	if g.home != nil {
		group.Go(func() { probe(ctx, g.home.watch) })
	}
	defer group.Wait()
	return g.fleet.run(ctx)
}

// How often a store is asked while nobody calls it: each time half to all of the pause.
const (
	idle   = 2 * time.Second
	absent = time.Second
)

// probe asks the parts of a store that no call reaches, so that their state is right without traffic.
func probe(ctx context.Context, store *failover.Store) {
	for ctx.Err() == nil {
		pause := idle
		if err := store.Probe(ctx); err != nil { // OnError and OnChange log it
			pause = absent
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause/2 + rand.N(pause/2)):
		}
	}
}

// closing bounds Close: it is part of the time that an orchestrator gives a service to end.
const closing = 5 * time.Second

// Close writes to Redis what mode local admitted and Redis does not count yet, and logs how much was written and lost.
// It tries for a few seconds. The service must not decide any more.
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

// stats returns the counts of the stores of all places.
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

// A Health is the state of a service. It is degraded while Redis, or a part of a Cluster, takes no charges, and while a
// store in memory is full: then it answers by failure modes, and restarting it would not help.
type Health struct {
	Status string `json:"status"`          // ok, degraded or Draining
	Store  string `json:"store"`           // up, down, probing, or memory
	Cause  string `json:"cause,omitempty"` // why it is not up: see package cause
	Home   string `json:"home,omitempty"`  // up or down; empty without one
	// Instances is how many share the limits; 0 while that is not known.
	Instances int `json:"instances"`
}

// Draining is the status of a service that is about to stop.
const Draining = "draining"

// Health returns the state now. It sends nothing.
func (g *Guard) Health() Health {
	h := Health{Status: "ok", Store: g.Store.State().String(), Instances: g.fleet.instances()}
	if g.Store.State() != failover.Up {
		h.Status, h.Cause = "degraded", g.outages.cause()
	}
	if g.home != nil {
		var cause string
		if h.Home, cause = g.home.state(); h.Home == "down" && h.Status == "ok" {
			h.Status, h.Cause = "degraded", cause
		}
	}
	return h
}

const (
	every    = 5 * time.Second // the longest time between two heart-beats; half of it is the shortest
	lives    = 3 * every       // for which an instance counts after one
	patience = time.Second     // for the answer to one
)

// A fleet is the number of instances that share the limits, counted by heart-beats, and at least the number that was
// given. An instance that starts while Redis is away knows no other.
//
// What counts is the greatest number of the last while. A Redis that has lost its state, or has just come back,
// knows of few instances until all have called, and a share that is too large would admit too much.
type fleet struct {
	floor int // 0 if no number was given
	beat  func(context.Context) (int, error)
	log   *slog.Logger
	count atomic.Int64
	seen  []sighting // of run
}

// A sighting is a number of instances, and when it was seen.
type sighting struct {
	at time.Time
	n  int
}

// instances returns the number, or 0 while it is not known.
func (f *fleet) instances() int { return max(f.floor, int(f.count.Load())) }

// run sends heart-beats until the context ends. Instances that start together do not stay together.
func (f *fleet) run(ctx context.Context) error {
	for {
		f.once(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(every/2 + rand.N(every/2)):
		}
	}
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
		f.note(time.Now(), int(f.count.Load())) // it holds for a while after the failure
	}
}

// note adds a sighting, and forgets those that are over.
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
