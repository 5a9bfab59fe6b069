package modeltest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/judge"
	"example.com/sash/internal/redistest"
	"example.com/sash/internal/threshold"
	"example.com/sash/memstore"
	"example.com/sash/redisstore"
)

// A log that is full merges entries. What each operation does then on Redis is what it does in memory.
func TestLogsThatMergeDecideAlike(t *testing.T) {
	server := redistest.Start(t)
	for _, a := range []sash.Algorithm{sash.SlidingLog, sash.SlidingBuckets} {
		if err := newBench(t, server.Addr(), a, nil).mergedWalks(uint64(60 * *times)); err != nil {
			t.Errorf("%v: %v", a, err)
		}
	}
}

// merged: logs that merge answer on Redis as in memory, which TestMemoryInTheSmallWorld compares with the definition.
func (b *bench) merged() error {
	if !b.books() {
		return nil
	}
	return b.mergedWalks(16)
}

// mergedWalks makes random calls on logs that merge when they have 8 to 64 entries.
func (b *bench) mergedWalks(n uint64) error {
	before := threshold.Log
	defer func() { threshold.Log = before }()
	for seed := range n {
		full := 8 << (seed % 4)
		store, clock, scripts := b.small()
		scripts.thresholds = smallSteps.But(threshold.Table{"MOST_ENTRIES": int64(full), "MERGE_STEPS": 8})
		threshold.Log.Entries, threshold.Log.Steps = full, 8
		w := &mergeWalk{
			redis: store, memory: memstore.New(&memstore.Options{Now: clock.Now}), clock: clock, algorithm: b.algorithm,
			rng: rand.New(rand.NewPCG(seed, 41)), key: fmt.Sprint("merged ", walks.Add(1)),
		}
		if err := w.run(400); err != nil {
			return fmt.Errorf("walk %d of logs that merge at %d: %w\nafter\n\t%s", seed, full, err, strings.Join(w.trace[max(0, len(w.trace)-25):], "\n\t"))
		}
	}
	return nil
}

// However many calls there are, no window holds more than its limit, and of an even demand at least 99 % are admitted: also
// beside a window a million times as long, under plans in turn, and up to the last unit of each period of the calendar.
func TestLogsThatMergeAdmitAnEvenDemand(t *testing.T) {
	for name, c := range map[string]struct {
		plans  [][]sash.Limit // of every hundredth call the last one
		second int64          // calls
		length int64          // seconds
		least  int64
	}{
		"a minute":                {[][]sash.Limit{{sash.PerMinute(150_000)}}, 2500, 300, 742_500},
		"more than a minute has":  {[][]sash.Limit{{sash.PerMinute(150_000)}}, 4000, 300, 742_500},
		"a minute beside a month": {[][]sash.Limit{{sash.PerMinute(120_000), sash.Every(1_000_000_000, 30*24*time.Hour)}}, 2000, 300, 594_000},
		"plans in turn":           {[][]sash.Limit{{sash.PerMinute(60_000)}, {sash.Every(1<<40-1, 30*24*time.Hour)}}, 1000, 600, 594_000},
		"a calendar hour":         {[][]sash.Limit{{sash.PerMinute(13_000), sash.PerCalendar(719_990, sash.CalendarHour, nil)}}, 200, 7200, 2 * 719_990},
	} {
		clock := judge.NewClock(time.Date(2031, 3, 29, 22, 0, 0, 0, time.UTC))
		store := memstore.New(&memstore.Options{Now: clock.Now})
		var policies []*driver.Policy
		for _, limits := range c.plans {
			policies = append(policies, newPolicy(t, nil, limits...))
		}
		window, units := c.plans[0][0].Window.Microseconds(), c.plans[0][0].Units
		var admitted []int64
		first := 0
		for i := range c.second * c.length {
			policy := policies[0]
			if i%100 == 0 {
				policy = policies[len(policies)-1]
			}
			a, err := store.Decide(t.Context(), driver.Request{Key: "k", Policy: policy, Cost: 1})
			if err != nil {
				t.Fatal(err)
			}
			if a.Allowed() {
				for admitted = append(admitted, a.At); admitted[first] <= a.At-window; first++ {
				}
				if n := int64(len(admitted) - first); n > units && policy == policies[0] {
					t.Fatalf("%s: %d are admitted in a window of %d", name, n, units)
				}
			}
			clock.Advance(time.Second / time.Duration(c.second))
		}
		if n := int64(len(admitted)); n < c.least {
			t.Errorf("%s: %d of %d calls are admitted, want %d", name, n, c.second*c.length, c.least)
		}
	}
}

// A mergeWalk makes the same random calls on two stores.
type mergeWalk struct {
	redis     *redisstore.Store
	memory    *memstore.Store
	clock     *judge.Clock
	algorithm sash.Algorithm
	rng       *rand.Rand
	key       string
	policies  []*driver.Policy
	held      []driver.Settlement // may be settled
	back      int64
	trace     []string
}

func (w *mergeWalk) run(steps int) error {
	opts := options(w.algorithm)
	opts.CountRefused = w.rng.IntN(5) == 0
	plans := [][]sash.Limit{
		{sash.PerCalendar(900, sash.CalendarHour, nil), sash.Every(180, 10*time.Second)},
		{sash.Every(200, 10*time.Second), sash.Every(2000, 100*time.Second)},
		{sash.Every(150, 10*time.Second)},
		{sash.Every(1<<39, 100*time.Second), sash.PerCalendar(700, sash.CalendarHour, time.FixedZone("half an hour", 1800))},
	}
	for i := range 1 + w.rng.IntN(len(plans)) {
		policy, err := sash.NewPolicy(opts, plans[i]...)
		if err != nil {
			return err
		}
		w.policies = append(w.policies, policy)
	}
	for _, store := range []driver.Store{w.redis, w.memory} { // from now on both keep what an hour needs
		for _, key := range []string{w.key, w.key + " too"} {
			if _, err := store.Decide(context.Background(), driver.Request{Key: key, Policy: w.policies[0], Cost: 1}); err != nil {
				return err
			}
		}
	}
	for range steps {
		if err := w.step(); err != nil {
			return err
		}
	}
	return nil
}

// step makes one call, and compares both answers with each other.
func (w *mergeWalk) step() error {
	ctx := context.Background()
	w.clock.Advance(time.Duration(w.rng.IntN(300_000)) * time.Microsecond)
	req := driver.Request{Key: w.key, Policy: w.policies[w.rng.IntN(len(w.policies))], Cost: 1 + w.rng.Int64N(9)}
	req.MaySettle = !req.Policy.CountRefused
	now, set := w.clock.Now().UnixMicro(), driver.Settlement{}
	if n := len(w.held); n > 0 {
		set = w.held[w.rng.IntN(n)]
	}
	what := ""
	decide := func(store driver.Store) ([]driver.Answer, error) {
		a, err := store.Decide(ctx, req)
		return []driver.Answer{a}, err
	}
	switch n := w.rng.IntN(200); {
	default:
	case n < 20:
		req.Cost = 0
	case n < 40:
		req.Within = w.rng.Int64N(5_000_000)
	case n < 60 && len(w.held) > 0:
		set.Units = w.rng.Int64N(set.Request.Cost + 3)
		set.ID = fmt.Sprint(len(w.trace))
		what = fmt.Sprintf("settle twice %d of %d to %d", set.Request.Cost, set.At, set.Units)
		decide = func(store driver.Store) ([]driver.Answer, error) {
			return nil, errors.Join(store.(driver.Settler).Settle(ctx, set), store.(driver.Settler).Settle(ctx, set))
		}
		w.settled(set.At)
	case n < 66 && len(w.held) > 0 && len(set.Request.Policy.Limits) == 1: // on Redis a slot's charge is extended under one limit
		what = fmt.Sprintf("extend %d of %d", set.Request.Cost, set.At)
		decide = func(store driver.Store) ([]driver.Answer, error) {
			at, err := store.(driver.Extender).Extend(ctx, set)
			return []driver.Answer{{At: at}}, err
		}
		w.settled(set.At)
	case n < 76:
		what = "once"
		id := fmt.Sprint("call ", len(w.trace)-w.rng.IntN(30))
		decide = func(store driver.Store) ([]driver.Answer, error) {
			a, err := store.(driver.Deduplicator).DecideOnce(ctx, id, req)
			return []driver.Answer{a}, err
		}
	case n < 86:
		what = "on two subjects"
		other := req
		other.Key += " too"
		decide = func(store driver.Store) ([]driver.Answer, error) {
			return store.(driver.MultiStore).DecideAll(ctx, []driver.Request{req, other})
		}
	case n < 92:
		req.Partial, req.Cost = true, 100
	case n < 98 && req.MaySettle: // otherwise one store may have forgotten what newer entries outweigh
		req.Forced, req.Cost = true, 20
	case n < 100 && req.MaySettle:
		what, w.held = "reward", nil // of charges whose units it takes nothing more need be given back
		decide = func(store driver.Store) ([]driver.Answer, error) {
			a, err := store.(driver.Taker).Reward(ctx, req)
			return []driver.Answer{a}, err
		}
	case n == 100:
		w.clock.Advance(time.Duration(w.rng.IntN(100)) * time.Second)
	case n == 101:
		w.held, w.back = nil, now+6e6 // until then a store need not find a charge
		w.clock.Advance(-time.Duration(w.rng.IntN(3000)) * time.Millisecond)
	}
	got, err := decide(w.redis)
	if err != nil {
		return err
	}
	want, err := decide(w.memory)
	if err != nil {
		return err
	}
	line := fmt.Sprintf("%d: %s cost %d within %d under %v", w.clock.Now().UnixMicro(), what, req.Cost, req.Within, limitsOf(req.Policy))
	for i := range want {
		got[i].Firm, want[i].Firm = false, false // stores may know it or not
		line += ": " + shown(&want[i])
		if !reflect.DeepEqual(got[i], want[i]) {
			return fmt.Errorf("%s\nRedis answers %s", line, shown(&got[i]))
		}
	}
	w.trace = append(w.trace, line)
	if what == "" && req.Cost > 0 && req.MaySettle && want[0].Allowed() && !req.Partial && want[0].At > w.back {
		w.held = append(w.held, driver.Settlement{Request: req, At: want[0].At, Delay: want[0].Delay})
	}
	return nil
}

// settled forgets a charge.
func (w *mergeWalk) settled(at int64) {
	for i := range w.held {
		if w.held[i].At == at {
			w.held = append(w.held[:i], w.held[i+1:]...)
			return
		}
	}
}
