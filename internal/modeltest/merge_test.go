package modeltest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/drivertest"
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
			last := strings.Join(w.trace[max(0, len(w.trace)-25):], "\n\t")
			return fmt.Errorf("walk %d of logs that merge at %d: %w\nafter\n\t%s", seed, full, err, last)
		}
	}
	return nil
}

// However many calls there are, no window holds more than its limit, and of an even demand at least 99 % are admitted: also
// beside a window a million times as long, under plans in turn, and up to the last unit of each period of the calendar.
func TestLogsThatMergeAdmitAnEvenDemand(t *testing.T) {
	for name, c := range map[string]struct {
		plans                 [][]sash.Limit // of every hundredth call the last one
		second, length, least int64          // calls, seconds, admitted
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
			a := must(drivertest.Of(store).Decide(t.Context(), driver.Request{Key: "k", Policy: policy, Cost: 1}))
			if a.Allowed() {
				admitted = append(admitted, a.At)
				for admitted[first] <= a.At-window {
					first++
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

func (w *mergeWalk) run(steps int) (err error) {
	defer caught(&err)
	opts := options(w.algorithm)
	opts.CountRefused = w.rng.IntN(5) == 0
	plans := [][]sash.Limit{
		{sash.PerCalendar(900, sash.CalendarHour, nil), sash.Every(180, 10*time.Second)},
		{sash.Every(200, 10*time.Second), sash.Every(2000, 100*time.Second)},
		{sash.Every(150, 10*time.Second)},
		{sash.Every(1<<39, 100*time.Second), sash.PerCalendar(700, sash.CalendarHour, time.FixedZone("half an hour", 1800))},
	}
	for i := range 1 + w.rng.IntN(len(plans)) {
		policy := must(sash.NewPolicy(opts, plans[i]...))
		w.policies = append(w.policies, policy)
	}
	for _, store := range []driver.Store{w.redis, w.memory} { // from now on both keep what an hour needs
		for _, key := range []string{w.key, w.key + " too"} {
			must(drivertest.Of(store).Decide(context.Background(), driver.Request{Key: key, Policy: w.policies[0], Cost: 1}))
		}
	}
	for range steps {
		check(w.step())
	}
	return nil
}

// step makes one call, and compares both answers with each other.
func (w *mergeWalk) step() error {
	w.clock.Advance(time.Duration(w.rng.IntN(300_000)) * time.Microsecond)
	ctx, now, set, what := context.Background(), w.clock.Now().UnixMicro(), driver.Settlement{}, ""
	req := driver.Request{Key: w.key, Policy: w.policies[w.rng.IntN(len(w.policies))], Cost: 1 + w.rng.Int64N(9)}
	req.MaySettle = !req.Policy.CountRefused
	if n := len(w.held); n > 0 {
		set = w.held[w.rng.IntN(n)]
	}
	one := func(a driver.Answer, err error) ([]driver.Answer, error) { return []driver.Answer{a}, err }
	decide := func(s drivertest.Calls) ([]driver.Answer, error) { return one(s.Decide(ctx, req)) }
	switch n := w.rng.IntN(200); {
	default:
	case n < 20:
		req.Cost = 0
	case n < 40:
		req.Within = w.rng.Int64N(5_000_000)
	case n < 60 && len(w.held) > 0:
		set.Units, set.ID = w.rng.Int64N(set.Request.Cost+3), fmt.Sprint(len(w.trace))
		what = fmt.Sprintf("settle twice %d of %d to %d", set.Request.Cost, set.At, set.Units)
		decide = func(s drivertest.Calls) ([]driver.Answer, error) {
			return nil, errors.Join(s.Settle(ctx, set), s.Settle(ctx, set))
		}
	case n < 66 && len(w.held) > 0 && len(set.Request.Policy.Limits) == 1: // on Redis a slot's charge is extended under one limit
		what = fmt.Sprintf("extend %d of %d", set.Request.Cost, set.At)
		decide = func(s drivertest.Calls) ([]driver.Answer, error) {
			at, err := s.Extend(ctx, set)
			return one(driver.Answer{At: at}, err)
		}
	case n < 76:
		what = fmt.Sprint("call ", len(w.trace)-w.rng.IntN(30))
		decide = func(s drivertest.Calls) ([]driver.Answer, error) { return one(s.Once(ctx, what, req)) }
	case n < 86:
		what = "on two subjects"
		other := req
		other.Key += " too"
		decide = func(s drivertest.Calls) ([]driver.Answer, error) { return s.All(ctx, req, other) }
	case n < 92:
		req.Partial, req.Cost = true, 100
	case n < 98 && req.MaySettle: // otherwise one store may have forgotten what newer entries outweigh
		req.Forced, req.Cost = true, 20
	case n < 100 && req.MaySettle:
		what, w.held = "reward", nil // of charges whose units it takes nothing more need be given back
		decide = func(s drivertest.Calls) ([]driver.Answer, error) { return one(s.GiveBack(ctx, req)) }
	case n == 100:
		w.clock.Advance(time.Duration(w.rng.IntN(100)) * time.Second)
	case n == 101:
		w.held, w.back = nil, now+6e6 // until then a store need not find a charge
		w.clock.Advance(-time.Duration(w.rng.IntN(3000)) * time.Millisecond)
	}
	got, err := decide(drivertest.Of(w.redis))
	want, err2 := decide(drivertest.Of(w.memory))
	check(errors.Join(err, err2))
	line := fmt.Sprintf("%d: %s cost %d within %d under %v", w.clock.Now().UnixMicro(), what, req.Cost, req.Within, limitsOf(req.Policy))
	for i := range want {
		got[i].Firm, want[i].Firm = false, false // stores may know it or not
		line += ": " + shown(&want[i])
		if !reflect.DeepEqual(got[i], want[i]) {
			return fmt.Errorf("%s\nRedis answers %s", line, shown(&got[i]))
		}
	}
	w.trace = append(w.trace, line)
	switch {
	case what == "" && req.Cost > 0 && req.MaySettle && want[0].Allowed() && !req.Partial && want[0].At > w.back:
		w.held = append(w.held, driver.Settlement{Request: req, At: want[0].At, Delay: want[0].Delay})
	case strings.HasPrefix(what, "settle"), strings.HasPrefix(what, "extend"):
		w.held = slices.DeleteFunc(w.held, func(other driver.Settlement) bool { return other.At == set.At })
	}
	return nil
}

// A large ring, with dear calls and a second window, decides on Redis as in memory, also after a silence and a clock that went back.
func TestBigLogs(t *testing.T) {
	redis, clock, _ := virtual(t, redistest.Start(t).Addr(), nil)
	memory, rng := memstore.New(&memstore.Options{Now: clock.Now}), rand.New(rand.NewPCG(16_000, 7))
	long := sash.Every(16_000, 3*time.Minute)
	policies := []*driver.Policy{newPolicy(t, nil, sash.Every(10_000, time.Minute), long), newPolicy(t, nil, long)}
	for i := range 16_000 {
		clock.Advance(time.Duration(rng.IntN(11_000)) * time.Microsecond)
		switch i {
		case 9_000:
			clock.Advance(100 * time.Second)
		case 5_000, 14_000:
			clock.Advance(-10 * time.Second)
		}
		req := driver.Request{Key: "big", Policy: policies[min(i, rng.IntN(2))], Cost: []int64{0, 1, 1, 1, 1, 1, 2, 3}[rng.IntN(8)]}
		got, want := must(drivertest.Of(redis).Decide(t.Context(), req)), must(drivertest.Of(memory).Decide(t.Context(), req))
		got.Firm, want.Firm = false, false // stores may know it or not
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("call %d, cost %d under %v: Redis answers %s, memory %s", i, req.Cost, limitsOf(req.Policy), shown(&got), shown(&want))
		}
	}
}
