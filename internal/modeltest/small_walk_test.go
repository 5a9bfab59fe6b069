package modeltest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/judge"
)

// A smallWalk is random calls on one subject, judged by a smallModel.
type smallWalk struct {
	store    smallStore
	clock    *judge.Clock
	rng      *rand.Rand
	key      string
	policies []*driver.Policy // the first has every limit
	dear, up bool             // calls cost as much as they can; they cost more when they are settled
	model    smallModel
	held     []*smallCharge      // not settled yet
	again    []driver.Settlement // settled, with an ID
	back     int                 // how often the clock went back
	calls    int                 // of the store
	trace    []string
	traced   bool
}

type smallStore interface {
	driver.Store
	driver.Settler
	driver.Resetter
}

// smallLimits are limits of walks: of a few units, and of so many that charges fill entries and sums.
var smallLimits = [][]sash.Limit{
	{sash.Every(40, 100*time.Second), sash.Every(12, 20*time.Second), sash.Every(6, 5*time.Second), sash.Every(25, 60*time.Second)},
	{sash.Every(240, 100*time.Second), sash.Every(250, 5*time.Second), sash.Every(60, 20*time.Second), sash.Every(130, 60*time.Second)},
	{sash.Every(1000, 100*time.Second), sash.Every(3, 1*time.Second), sash.Every(20, 30*time.Second)},
	{sash.Every(390, 100*time.Second), sash.Every(1000, 2*time.Second), sash.Every(395, 3*time.Second)},
}

// smallPolicies are all of the limits, and then some of them in any order.
func smallPolicies(rng *rand.Rand, opts *sash.Options) ([]*driver.Policy, error) {
	limits := append([]sash.Limit(nil), smallLimits[rng.IntN(len(smallLimits))]...)
	for i := range limits {
		limits[i].Units = min(limits[i].Units, mostOfEntry-1)
	}
	var policies []*driver.Policy
	for n := len(limits); len(policies) < 12; n = 1 + rng.IntN(len(limits)) {
		policy, err := sash.NewPolicy(opts, limits[:n]...)
		if err != nil {
			return nil, err
		}
		policies = append(policies, policy)
		rng.Shuffle(len(limits), func(i, j int) { limits[i], limits[j] = limits[j], limits[i] })
	}
	return policies, nil
}

// run makes calls until one is judged wrong.
func (w *smallWalk) run(steps int) error {
	for range steps {
		w.move()
		if err := w.step(); err != nil {
			return fmt.Errorf("%w\nafter\n\t%s", err, strings.Join(w.trace[max(0, len(w.trace)-60):], "\n\t"))
		}
	}
	return nil
}

func (w *smallWalk) note(format string, args ...any) {
	if w.traced {
		w.trace = append(w.trace, fmt.Sprintf(format, args...))
	}
}

// move moves the clock by whole milliseconds. When it goes back, it goes to a part of a millisecond where it never was.
func (w *smallWalk) move() {
	switch n := w.rng.IntN(200); {
	case n < 100:
		w.clock.Advance(time.Duration(w.rng.IntN(5000)) * time.Millisecond)
	case n == 100:
		w.clock.Advance(time.Duration(w.rng.IntN(300)) * time.Second)
	case n < 104 && w.back < 900:
		w.back++
		now := w.clock.Now().UnixMicro()
		to := now - int64(w.rng.IntN(60_000))*1000 - 1000
		w.clock.Advance(time.Duration(to-to%1000+int64(w.back)-now) * time.Microsecond)
		w.note("the clock goes back to %d", w.clock.Now().UnixMicro())
		w.again = nil // a store may have forgotten the ID of a settlement that had ended
	}
}

func (w *smallWalk) step() error {
	w.calls++
	now := w.clock.Now().UnixMicro()
	switch n := w.rng.IntN(100); {
	case n < 12 && len(w.held) > 0:
		return w.settle(now)
	case n < 14 && len(w.again) > 0:
		return w.repeat()
	case n == 14 && w.rng.IntN(4) == 0:
		return w.reset()
	}
	policy := w.policies[w.rng.IntN(len(w.policies))]
	req := driver.Request{Key: w.key, Policy: policy, Cost: 1, MaySettle: !w.model.countRefused}
	switch n := w.rng.IntN(6); {
	case n == 0:
		req.Cost = 0
	case n < 3:
		req.Cost += w.rng.Int64N(policy.MostUnits())
	case w.dear:
		req.Cost = policy.MostUnits()
	}
	if w.forgotten(now) {
		if err := w.store.Reset(context.Background(), w.key, policy); err != nil {
			return err
		}
		w.restart()
		w.clock.Advance(time.Millisecond)
		req.Policy = w.policies[0] // from now on the log keeps what the longest window needs
		req.Cost = 1
	}
	res, err := w.store.Decide(context.Background(), req)
	if err != nil {
		return err
	}
	if w.traced {
		w.note("at %d: cost %d under %v: refusals %b, %+v", res.At, req.Cost, limitsIn(req.Policy), res.Refusals, res.Statuses())
	}
	charge, err := w.model.check(req, res)
	if err != nil {
		return err
	}
	if charge != nil && req.MaySettle && w.rng.IntN(3) > 0 {
		w.held = append(w.held, charge)
	}
	return nil
}

// forgotten reports whether a store may have forgotten the subject, with its longest window.
func (w *smallWalk) forgotten(now int64) bool {
	n := len(w.model.entries)
	return n == 0 || w.model.entries[n-1].at <= now-w.model.keep
}

func (w *smallWalk) restart() {
	for _, c := range w.model.charges {
		c.ended = true
	}
	w.model = smallModel{smallWorld: w.model.smallWorld, seen: w.model.seen}
	w.held, w.again = nil, nil
}

func (w *smallWalk) reset() error {
	w.note("reset")
	err := w.store.Reset(context.Background(), w.key, w.policies[0])
	w.restart()
	w.clock.Advance(time.Millisecond)
	return err
}

func (w *smallWalk) settle(now int64) error {
	i := w.rng.IntN(len(w.held))
	c := w.held[i]
	w.held[i] = w.held[len(w.held)-1]
	w.held = w.held[:len(w.held)-1]
	if now >= c.set.Expires() {
		return nil
	}
	set := c.set
	set.Units = []int64{0, 0, 0, 1, set.Request.Cost / 2, set.Request.Cost + 2, mostOfEntry}[w.rng.IntN(7)]
	if w.up {
		set.Units = []int64{mostOfEntry, mostOfEntry, set.Request.Cost + 100, 0}[w.rng.IntN(4)]
	}
	if w.rng.IntN(2) == 0 {
		set.ID = fmt.Sprint(w.key, w.calls)
		w.again = append(w.again, set)
	}
	w.note("at %d: settle %d of %d to %d", now, c.set.Request.Cost, c.set.At, set.Units)
	if err := w.store.Settle(context.Background(), set); err != nil {
		return err
	}
	w.model.settle(c, set.Units)
	w.calls++
	return nil
}

// repeat settles what is settled, which does nothing.
func (w *smallWalk) repeat() error {
	set := w.again[w.rng.IntN(len(w.again))]
	w.note("settle %d of %d again", set.Request.Cost, set.At)
	return w.store.Settle(context.Background(), set)
}

// newSmallWalk returns the walk of a seed.
func newSmallWalk(store smallStore, clock *judge.Clock, seed uint64, a sash.Algorithm, world smallWorld, seen map[string]int) (*smallWalk, error) {
	rng := rand.New(rand.NewPCG(seed, 17))
	opts := &sash.Options{Algorithm: a, CountRefused: rng.IntN(4) == 0}
	world.resolution, world.countRefused = 1, opts.CountRefused
	if a == sash.SlidingBuckets {
		opts.Resolution = time.Second
		world.resolution = time.Second.Microseconds()
	}
	policies, err := smallPolicies(rng, opts)
	return &smallWalk{
		dear: rng.IntN(3) == 0, up: rng.IntN(3) == 0, store: store, clock: clock, rng: rng, key: fmt.Sprint("small ", walks.Add(1)), policies: policies,
		model: smallModel{smallWorld: world, seen: seen},
	}, err
}
