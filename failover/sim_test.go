package failover

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"example.com/sash/driver"
)

var (
	simSeed  = flag.Uint64("seed", 0, "run this seed of the simulation only")
	simSeeds = flag.Uint64("seeds", 150, "how many seeds of the simulation to run; make test runs more")
)

// Processes decide over a simulated server that is slow, loses requests and replies, hangs, is gone, loses
// its last charges and has a clock that jumps, in virtual time. Every promise is checked over all calls.
func TestSimulation(t *testing.T) {
	first, last := uint64(1), *simSeeds
	if *simSeed != 0 {
		first, last = *simSeed, *simSeed
	}
	var calls atomic.Int64
	t.Run("seeds", func(t *testing.T) {
		const shards = 4
		for shard := range uint64(shards) {
			t.Run(fmt.Sprint(shard), func(t *testing.T) {
				t.Parallel()
				for seed := first + shard; seed <= last && !t.Failed(); seed += shards {
					problems, n := simulate(t, seed, &bug{})
					calls.Add(int64(n))
					if len(problems) > 0 {
						t.Errorf("%v\nagain: go test ./failover -run TestSimulation -seed %d", problems[0], seed)
					}
				}
			})
		}
	})
	t.Logf("%d seeds, %d calls", last-first+1, calls.Load())
}

// retries sends again what may have run, as clients do by default.
type retries struct{ *link }

func (s retries) Do(ctx context.Context, b *driver.Batch) (err error) {
	if op := &b.Ops[0]; op.Kind != driver.Charge || op.ID != "" || len(b.Ops) > 1 {
		return s.link.Do(ctx, b)
	}
	for range 3 {
		brief, cancel := context.WithTimeout(ctx, DefaultBudget/3)
		err = s.link.Do(brief, b)
		cancel()
		if err == nil {
			break
		}
	}
	return err
}

// forgets is a local store that does not learn what the other store admitted.
type forgets struct{ driver.Store }

func (s forgets) Do(ctx context.Context, b *driver.Batch) error {
	if op := &b.Ops[0]; op.Kind == driver.Charge && op.ID == "" && len(b.Ops) == 1 && op.Policy.CountRefused {
		return nil
	}
	return s.Store.Do(ctx, b)
}

// renames is a store that takes every repetition for a new call.
type renames struct{ *link }

func (s renames) Do(ctx context.Context, b *driver.Batch) error {
	if b.Ops[0].Kind != driver.Charge {
		return s.link.Do(ctx, b)
	}
	anew := b.Clone()
	anew.Ops[0].ID = ""
	err := s.link.Do(ctx, anew)
	b.Take(anew)
	return err
}

// hides keeps a debt out of the backlog while it looks at the store and writes.
func hides(g *guard) {
	for i := range g.local.backlogs {
		b, store := &g.local.backlogs[i], &g.breakers[i]
		b.write = func(done chan<- struct{}) {
			defer close(done)
			for g.rest(store, firstPause) {
				of, policy, wait := b.next()
				if policy == nil && wait == 0 {
					return
				}
				if policy == nil {
					time.Sleep(max(time.Millisecond, min(wait, firstPause)))
					continue
				}
				d := b.claim(of)
				if d == nil {
					continue
				}
				b.mu.Lock()
				delete(b.sent, d)
				b.mu.Unlock()
				req := driver.Request{Key: of.key, Cost: d.cost, Policy: holding(policy, d.cost)}
				works := g.look(store, of.key, policy)
				time.Sleep(20 * time.Millisecond)
				if !works {
					b.land(d, uncharged)
				} else if _, err := driver.Decide(context.Background(), g.store, req); err != nil {
					b.land(d, uncharged)
				}
			}
			b.abandon()
		}
	}
}

// impatient is a store that lets bookings start at once.
type impatient struct{ *link }

func (s impatient) Do(ctx context.Context, b *driver.Batch) error {
	err := s.link.Do(ctx, b)
	if b.Ops[0].ID == "" && len(b.Ops) == 1 {
		b.Ops[0].Answer.Delay = 0
	}
	return err
}

// pushes is a local store that lets a booking go ahead of others if it fits now.
type pushes struct{ driver.Store }

func (s pushes) Do(ctx context.Context, b *driver.Batch) error {
	if op := &b.Ops[0]; op.Kind == driver.Charge && op.ID == "" && len(b.Ops) == 1 && op.Within > 0 {
		now := b.Clone()
		now.Ops[0].Within = 0
		if err := s.Store.Do(ctx, now); err != nil || now.Ops[0].Answer.Allowed() {
			b.Take(now)
			return err
		}
	}
	return s.Store.Do(ctx, b)
}

// The simulation finds what is put in on purpose.
func TestTheSimulationFindsBugs(t *testing.T) {
	for name, b := range map[string]bug{
		"a call is sent again and charged twice": {store: func(s driver.Store) driver.Store { return retries{s.(*link)} }, found: "times"},
		"a write is repeated and charged twice":  {store: func(s driver.Store) driver.Store { return renames{s.(*link)} }, found: "were written to the store; "},
		"a reset misses what is written":         {guard: hides, found: "were written afterwards"},
		"a settlement misses what is looked at":  {guard: hides, found: "units are doubtful for nothing"},
		"the share is not divided":               {instances: func() int { return 1 }, found: "its share is"},
		"everyone probes": {found: "two probes at a time", guard: func(g *guard) {
			g.enter = func(b *breaker) (ticket, error) {
				t, err := b.enter()
				if b.now() == Probing {
					return t, nil
				}
				return t, err
			}
		}},
		"switching over hands out a fresh share": {local: func(s driver.Store) driver.Store { return forgets{s} }, found: "its share is"},
		"what may be charged is charged again":   {classify: func(error) Kind { return Unsent }, found: "were written to the store; "},
		"the budget is not kept":                 {guard: func(g *guard) { g.budget *= 2 }, found: "the answer took"},
		"closed is open":                         {modes: Modes{Rules: []Rule{{Mode: Open}}}, found: "under mode closed: true"},
		"no caller probes": {found: "not at rest: down", guard: func(g *guard) {
			g.enter = func(b *breaker) (ticket, error) {
				if b.now() != Up {
					return 0, b.cause
				}
				return b.enter()
			}
		}},
		"local charges wait for a later call": {found: "waits for a call before", guard: func(g *guard) {
			for i := range g.local.backlogs {
				g.local.backlogs[i].write = func(done chan<- struct{}) {
					<-g.local.over.Done()
					close(done)
				}
			}
		}},
		"what was not written is counted as written":  {found: ", and counts", guard: func(g *guard) { g.local.written.Add(1) }},
		"a booking does not wait for its turn":        {store: func(s driver.Store) driver.Store { return impatient{s.(*link)} }, found: "starts early"},
		"a local booking goes ahead of others":        {local: func(s driver.Store) driver.Store { return pushes{s} }, found: "locally: it starts at"},
		"the share counts bookings before they start": {guard: func(g *guard) { g.local.ahead.Store(mostAhead) }, found: "its share is"},
		"calls under way are not bounded":             {guard: func(g *guard) { g.most = 1000 }, found: "calls under way"},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := uint64(1); seed <= 200; seed++ {
				problems, _ := simulate(t, seed, &b)
				if i := slices.IndexFunc(problems, func(p string) bool { return strings.Contains(p, b.found) }); i >= 0 {
					t.Logf("found with seed %d: %v", seed, problems[i])
					return
				}
			}
			t.Error("200 seeds did not find it")
		})
	}
}
