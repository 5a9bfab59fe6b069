package lease

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"example.com/sash/driver"
	"example.com/sash/internal/judge"
	"example.com/sash/internal/threshold"
	"example.com/sash/internal/window"
)

// judge looks at everything that was done.
func (s *simulation) judge() {
	s.findInstants()
	for _, key := range []string{"a", "b"} {
		s.judgeBound(key)
	}
	s.judgeResets()
	s.judgeDemand()
	s.judgeCrowd()
	s.judgeCalls()
}

// findInstants finds when each admitted call counts, by the one clock of the simulation: when it took its units from a
// lease, when the home decided it, or when it starts.
func (s *simulation) findInstants() {
	for i := range s.calls {
		c := &s.calls[i]
		if c.err != nil || !c.res.Allowed {
			continue
		}
		if c.res.Source == driver.FromOwn {
			c.at = s.spends[c.id]
			continue
		}
		at := c.res.At.UnixMicro()
		decided, known := s.decides[c.key][at]
		if !known {
			s.broken("call %x is admitted, and the home has charged nothing at its instant", c.id)
		}
		for _, reset := range s.resets[c.key] {
			if reset < decided {
				c.epoch++
			}
		}
		home := c.res.At.Sub(s.start.Add(s.home.clock.offset))
		defer s.judgeLease(c, home)
		switch {
		case c.res.Source == driver.FromStore:
			c.at = home
		case !s.shared:
			c.at = c.ended // a process takes units from its own lease in no time
		default:
			c.at = s.spends[c.id]
		}
	}
}

// judgeLease checks that units of a lease are spent from their charge until a longest lease later.
func (s *simulation) judgeLease(c *simCall, charged time.Duration) {
	if c.res.Source != driver.FromLease {
		return
	}
	if after := c.at - charged; after < 0 || after > s.longest {
		s.broken("call %x took units %v after their charge, at most %v", c.id, after, s.longest)
	}
}

// judgeBound checks that no window holds more than its limit, of units that were charged between two resets.
func (s *simulation) judgeBound(key string) {
	all := s.sorted(key)
	for epoch := range 1 + len(s.resets[key]) {
		for _, l := range s.limits {
			var charges []judge.Charge
			for _, c := range all {
				if c.epoch == epoch {
					charges = append(charges, judge.Charge{From: int64(c.at), To: int64(c.at), Units: c.cost - c.back})
				}
			}
			window := l.Window - time.Microsecond // clocks show whole microseconds
			if full, over := judge.Fullest(charges, int64(window), l.Units); over > 0 {
				s.broken("%d units of %s in the %v that end at %v, at most %d", full.Units, key, l.Window, time.Duration(full.To), l.Units)
			}
		}
	}
}

// judgeResets checks that no caller of a region spends from a lease from before a reset that a caller of the region made.
func (s *simulation) judgeResets() {
	for _, r := range s.ordered {
		for i := range s.calls {
			c := &s.calls[i]
			if c.key == r.key && c.process.region == r.region && c.began > r.ended && c.err == nil && c.res.Allowed &&
				c.res.Source == driver.FromLease && s.decides[c.key][c.res.At.UnixMicro()] < r.done {
				s.broken("call %x took units that were charged before the reset at %v", c.id, r.done)
			}
		}
	}
}

// patience is how long a caller that goes on asking waits at most, once all is well: the longest pause after a home that
// failed, the longest client's timeout, and until every charge has left, what the others have booked, and ways.
func (s *simulation) patience() time.Duration {
	longest := time.Duration(0)
	for _, l := range s.limits {
		longest = max(longest, l.Window)
	}
	return lastPause + 2*time.Second + 2*(longest+s.longest) + 2*s.longest
}

// judgeDemand checks that callers of every region are admitted in time once all is well.
func (s *simulation) judgeDemand() {
	admitted := make([]bool, simRegions)
	for i := range s.calls {
		c := &s.calls[i]
		if c.began > s.healthy() && c.ended <= s.healthy()+s.patience() && c.err == nil && c.res.Allowed {
			admitted[c.process.region] = true
		}
	}
	for region, ok := range admitted {
		if !ok {
			s.broken("region %d has no admission within %v after all is well", region, s.patience())
		}
	}
}

// judgeCrowd checks that no call fails long after all is well, however many there are: one waits for leases until then.
func (s *simulation) judgeCrowd() {
	for i := range s.calls {
		if c := &s.calls[i]; s.crowd && c.began > s.recovered() && c.err != nil {
			s.broken("call %x of a crowd fails %v after all is well: %v", c.id, c.began-s.healthy(), c.err)
		}
	}
}

// judgeCalls checks that a process calls home at most three times for each call, for a fetch asks twice and gives back, and
// that few of its calls are under way at once: those of its two callers, a fetch for each of two keys, and settlements,
// of which each lease has one.
func (s *simulation) judgeCalls() {
	for _, p := range s.lives {
		p.mu.Lock()
		defer p.mu.Unlock()
		if most := 3*p.asked + 10; p.sent > most {
			s.broken("process %x called home %d times for %d calls, at most %d", p.id, p.sent, p.asked, most)
		}
		most := 10
		if s.crowd { // a few calls that leases do not come for, and those of before there is one
			most = 2 * (mostDirect + 2)
		}
		if p.calls.most > most {
			s.broken("process %x had %d calls home under way, at most %d", p.id, p.calls.most, most)
		}
		// A region holds a few leases of each key at once, and what is left of each is settled within a client's timeout.
		if most := 2*threshold.Leases*(1+int(p.timeout/s.longest)) + 4; p.backs.most > most {
			s.broken("process %x had %d settlements under way, at most %d", p.id, p.backs.most, most)
		}
	}
}

var (
	simSeed  = flag.Uint64("seed", 0, "run this seed of the simulation only")
	simSeeds = flag.Uint64("seeds", 60, "how many seeds of the simulation to run; make test runs more")
)

// Processes in three regions decide over a home and a store of their region, with ways that are slow or cut and lose requests and
// answers, stores that restart, and clocks that differ, in virtual time. Every promise is checked over all calls.
func TestSimulation(t *testing.T) {
	first, last := uint64(1), *simSeeds
	if *simSeed != 0 {
		first, last = *simSeed, *simSeed
	}
	var calls, admitted, leased, own atomic.Int64
	t.Run("seeds", func(t *testing.T) {
		const shards = 4
		for shard := range uint64(shards) {
			t.Run(fmt.Sprint(shard), func(t *testing.T) {
				t.Parallel()
				for seed := first + shard; seed <= last && !t.Failed(); seed += shards {
					problems, all := simulate(t, seed, &bug{})
					for i := range all {
						calls.Add(1)
						if c := &all[i]; c.err == nil && c.res.Allowed {
							admitted.Add(1)
							switch c.res.Source {
							case driver.FromLease:
								leased.Add(1)
							case driver.FromOwn:
								own.Add(1)
							}
						}
					}
					if len(problems) > 0 {
						t.Errorf("%v\nagain: go test ./lease -run TestSimulation -seed %d", problems[0], seed)
					}
				}
			})
		}
	})
	t.Logf("%d seeds, %d calls, %d admitted, %d of them from leases, %d from own shares",
		last-first+1, calls.Load(), admitted.Load(), leased.Load(), own.Load())
}

// arrives lets a lease last from when its answer arrives.
type arrives struct{ simHolder }

func (h arrives) Bring(ctx context.Context, e window.Fetch) (kept bool, err error) {
	if e.Units > 0 {
		e.Longest += h.clock() - e.Began
	}
	return h.simHolder.Bring(ctx, e)
}

// twice is a holder that goes on keeping what it has given back, until Bring is called again.
type twice struct{ simHolder }

func (h twice) Return(ctx context.Context, key string, began, keep int64) (int64, error) {
	held, err := h.simHolder.Spend(ctx, window.Spending{Key: key, Cost: 1, Longest: h.s.longest.Microseconds(), Again: true})
	if err != nil || !held.Spent {
		return h.simHolder.Return(ctx, key, began, keep)
	}
	return held.Left, nil
}

// denies is a holder that keeps leases and says that it does not.
type denies struct{ simHolder }

func (h denies) Bring(ctx context.Context, e window.Fetch) (bool, error) {
	_, err := h.simHolder.Bring(ctx, e)
	return false, err
}

// hurries starts leases at once that the home has booked for later.
type hurries struct{ simHolder }

func (h hurries) Bring(ctx context.Context, e window.Fetch) (bool, error) {
	e.Longest += e.Delay
	e.Delay = 0
	return h.simHolder.Bring(ctx, e)
}

// shortens is a home that counts for as long as the limits say.
type shortens struct{ simHome }

func (h shortens) Do(ctx context.Context, b *driver.Batch) error {
	return instead(ctx, b, h.simHome, func(op *driver.Op) {
		op.Policy = limited(op.Policy, func(l *driver.Limit, _ int) { l.Window -= h.s.longest.Microseconds() })
	})
}

// instead has a store decide another call.
func instead(ctx context.Context, b *driver.Batch, store driver.Store, change func(op *driver.Op)) error {
	other := b.Clone()
	if op := &other.Ops[0]; op.Kind == driver.Charge && op.ID == "" && len(b.Ops) == 1 {
		change(op)
	}
	err := store.Do(ctx, other)
	b.Take(other)
	return err
}

// limited returns a policy with other limits.
func limited(policy *driver.Policy, change func(l *driver.Limit, i int)) *driver.Policy {
	other := *policy
	other.Limits = slices.Clone(policy.Limits)
	for i := range other.Limits {
		change(&other.Limits[i], i)
	}
	return &other
}

// forgetful does not drop the leases of a region when a key is reset.
type forgetful struct{ simHolder }

func (h forgetful) Forget(context.Context, string) error { return nil }

// loose asks the home four times for each decision.
type loose struct{ simHome }

func (h loose) Do(ctx context.Context, b *driver.Batch) error {
	if op := &b.Ops[0]; op.Kind == driver.Charge && len(b.Ops) == 1 {
		look := op.Request
		look.Cost, look.Within = 0, 0
		for range 5 {
			_, _ = driver.Decide(ctx, h.simHome, look)
		}
	}
	return h.simHome.Do(ctx, b)
}

// guesses takes an answer that is lost for an admission.
type guesses struct{ simHome }

func (h guesses) Do(ctx context.Context, b *driver.Batch) error {
	err := h.simHome.Do(ctx, b)
	if op := &b.Ops[0]; op.Kind == driver.Charge && errors.Is(err, errTimeout) {
		op.Answer.Set(h.s.home.clock.now().UnixMicro(), 0, make([]driver.Status, len(op.Policy.Limits)))
		return nil
	}
	return err
}

// generous is a home that does not take the own shares of regions off its limits.
type generous struct{ simHome }

func (h generous) Do(ctx context.Context, b *driver.Batch) error {
	return instead(ctx, b, h.simHome, func(op *driver.Op) {
		op.Policy = limited(op.Policy, func(l *driver.Limit, i int) { l.Units = h.s.limits[i].Units })
	})
}

// alone counts the own share of each process for itself.
type alone struct{ simNear }

func (n alone) Do(ctx context.Context, b *driver.Batch) error {
	return instead(ctx, b, n.simNear, func(op *driver.Op) { op.Key += fmt.Sprint(n.id) })
}

// forsakes lets a region take the home for down for ever.
type forsakes struct{ simHolder }

func (h forsakes) Spend(ctx context.Context, s window.Spending) (window.Held, error) {
	held, err := h.simHolder.Spend(ctx, s)
	if h.region == 2 && h.s.now() > h.s.end {
		return window.Held{At: held.At, Down: true, Wait: 1000}, err
	}
	return held, err
}

// stampedes lets every call go home as long as calls home, with their wait for a connection, take longer than half a lease.
type stampedes struct{ simHolder }

func (h stampedes) Spend(ctx context.Context, s window.Spending) (window.Held, error) {
	h.mu.Lock()
	long := h.took > h.s.longest/2
	h.mu.Unlock()
	if long {
		return window.Held{At: h.clock(), Alone: true}, nil
	}
	return h.simHolder.Spend(ctx, s)
}

// The simulation finds what is put in on purpose.
func TestTheSimulationFindsBugs(t *testing.T) {
	for name, b := range map[string]bug{
		"a lease lasts from when its answer arrives":     {holder: func(h simHolder) window.Holder { return arrives{h} }, found: "after their charge"},
		"a booked lease starts at once":                  {holder: func(h simHolder) window.Holder { return hurries{h} }, found: "units of"},
		"what is given back is spent too":                {holder: func(h simHolder) window.Holder { return twice{h} }, found: "units of"},
		"a lease that was kept is given back":            {holder: func(h simHolder) window.Holder { return denies{h} }, found: "units of"},
		"the home counts no longer than the limits":      {home: func(h simHome) driver.Store { return shortens{h} }, found: "units of"},
		"an answer that was lost is an admission":        {home: func(h simHome) driver.Store { return guesses{h} }, found: "nothing at its instant"},
		"the home is asked too often":                    {home: func(h simHome) driver.Store { return loose{h} }, found: "called home"},
		"a reset leaves leases":                          {holder: func(h simHolder) window.Holder { return forgetful{h} }, found: "before the reset"},
		"a region does not recover":                      {holder: func(h simHolder) window.Holder { return forsakes{h} }, found: "has no admission"},
		"own shares are not taken off the home's limits": {home: func(h simHome) driver.Store { return generous{h} }, found: "units of"},
		"each process of a region has an own share":      {near: func(n simNear) driver.Store { return alone{n} }, found: "units of"},
		"a wait for connections is taken for the way":    {holder: func(h simHolder) window.Holder { return stampedes{h} }, found: "of a crowd fails"},
		"clocks of regions are slow":                     {rate: 300_000, found: "after their charge"},
	} {
		t.Run(name, func(t *testing.T) {
			const most = 200
			for seed := uint64(1); seed <= most; seed++ {
				problems, _ := simulate(t, seed, &b)
				if i := slices.IndexFunc(problems, func(p string) bool { return strings.Contains(p, b.found) }); i >= 0 {
					t.Logf("found with seed %d: %v", seed, problems[i])
					return
				}
			}
			t.Errorf("%d seeds did not find it", most)
		})
	}
}
