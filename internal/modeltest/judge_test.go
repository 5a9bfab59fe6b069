package modeltest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/memstore"
	"example.com/sash/redisstore"
	"example.com/sash/storetest/oracle"
)

// A bench is one build of the scripts under judgement, on an empty server.
type bench struct {
	server    string
	store     *redisstore.Store // on the clock
	clock     *oracle.Clock
	scripts   *scripter
	plain     *redisstore.Store // on the clock, with keys that expire in real time
	algorithm sash.Algorithm
	t         testing.TB
	edit      func(name, text string) string
}

// newBench returns a build of the scripts with some text replaced.
func newBench(t testing.TB, server string, a sash.Algorithm, edit func(name, text string) string) *bench {
	b := &bench{server: server, algorithm: a, t: t, edit: edit}
	b.store, b.clock, b.scripts = virtual(t, server, edit)
	b.plain = redisstore.New(&scripter{client: b.scripts.client, clock: b.clock, edit: edit}, nil)
	if err := b.scripts.client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	return b
}

// judge returns an error when a build of the scripts breaks a promise. It is the suite that has to catch
// every mutant, so it is fast and draws the same calls each time.
func (b *bench) judge() error {
	for _, part := range []func() error{b.quiet, b.lives, b.midnight, b.walks, b.repeated, b.firm, b.booked, b.reset, b.given, b.blocked, b.cooled, b.long, b.deep, b.moved, b.chosen, b.extended} {
		if err := part(); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) request(key string, cost int64, limits ...sash.Limit) (driver.Request, error) {
	policy, err := sash.NewPolicy(options(b.algorithm), limits...)
	return driver.Request{Key: key, Cost: cost, Policy: policy}, err
}

// quiet: refusals and peeks write nothing, also when old charges could be cleared away.
func (b *bench) quiet() error {
	ctx := context.Background()
	charge, err := b.request("quiet", 2, sash.Every(10, 10*time.Second), sash.Every(12, 100*time.Second))
	if err != nil {
		return err
	}
	for range 6 {
		if _, err := b.plain.Decide(ctx, charge); err != nil {
			return err
		}
		b.clock.Advance(11 * time.Second)
	}
	refused, peek := charge, charge
	refused.Cost, peek.Cost = 10, 0
	for _, silence := range []time.Duration{0, 60 * time.Second, 70 * time.Second} {
		b.clock.Advance(silence)
		for _, req := range []driver.Request{refused, peek} {
			before, err := b.changes()
			if err != nil {
				return err
			}
			res, err := b.plain.Decide(ctx, req)
			if err != nil {
				return err
			}
			if req.Cost > 0 && res.Allowed() {
				continue
			}
			if after, err := b.changes(); err != nil || after != before {
				return fmt.Errorf("a call of cost %d that charges nothing wrote: %s changes, before %s (%v)", req.Cost, after, before, err)
			}
		}
	}
	return nil
}

func (b *bench) changes() (string, error) {
	return b.scripts.client.Eval(context.Background(),
		"return string.match(redis.call('INFO', 'persistence'), 'rdb_changes_since_last_save:(%d+)')", nil).Text()
}

// firm: a refusal is firm unless a charge may be settled, wherever that charge is.
func (b *bench) firm() error {
	if b.algorithm != sash.SlidingLog && b.algorithm != sash.SlidingBuckets {
		return nil
	}
	ctx := context.Background()
	const units = 20
	for later := range units + 1 {
		req, err := b.request(fmt.Sprint("firm", later), 1, sash.Every(units, time.Hour), sash.Every(units, 2*time.Hour))
		if err != nil {
			return err
		}
		for i := range units {
			req.MaySettle = i == later
			if _, err := b.store.Decide(ctx, req); err != nil {
				return err
			}
			b.clock.Advance(time.Minute)
		}
		for range 2 {
			res, err := b.store.Decide(ctx, req)
			if err != nil {
				return err
			}
			if res.Allowed() || res.Firm != (later == units) {
				return fmt.Errorf("the refusal after charge %d of %d could be settled is firm: %v", later, units, res.Firm)
			}
		}
	}
	return nil
}

// booked: random bookings are those of memory, with rings and steps of any size.
func (b *bench) booked() error {
	if b.algorithm != sash.SlidingLog && b.algorithm != sash.SlidingBuckets {
		return nil
	}
	small, clock, scripts := virtual(b.t, b.server, b.edit)
	scripts.thresholds = smallSteps
	for seed := range uint64(30) {
		store, now := b.store, b.clock
		if seed%2 == 0 {
			store, now = small, clock
		}
		w, err := newBookWalk(store, now, seed, b.algorithm, make(map[string]int))
		if err == nil {
			err = w.run(150)
		}
		if err != nil {
			return fmt.Errorf("walk %d with bookings: %w", seed, err)
		}
	}
	return bookEdges(b.store, b.clock, scripts, b.algorithm)
}

// lives: a key has an expiry after every call and lives as long as its charges.
func (b *bench) lives() error {
	ctx := context.Background()
	for i, window := range []time.Duration{400 * time.Millisecond, 1900 * time.Millisecond, 10 * time.Second, 10*time.Second + 999*time.Millisecond} {
		req, err := b.request(fmt.Sprint("lives", i), 3, sash.Every(30, window))
		if err != nil {
			return err
		}
		for range 3 {
			asked := time.Now()
			res, err := b.plain.Decide(ctx, req)
			if err != nil {
				return err
			}
			left, err := b.scripts.client.PTTL(ctx, b.plain.Key(req.Key, req.Policy)).Result()
			if err != nil {
				return err
			}
			passed := time.Since(asked)
			if left == -1 {
				return fmt.Errorf("a key has no expiry")
			}
			reset := time.Duration(res.Statuses()[0].Reset) * time.Microsecond
			if passed < reset && left+passed+2*time.Millisecond < reset {
				return fmt.Errorf("a key lives for %v, and its last charge leaves after %v", left, reset)
			}
			b.clock.Advance(window / 20)
		}
	}
	return nil
}

// reset: a settlement of a charge from before a reset does nothing.
func (b *bench) reset() error {
	ctx := context.Background()
	req, err := b.request("reset", 4, sash.Every(10, time.Hour))
	if err != nil {
		return err
	}
	before, err := b.store.Decide(ctx, req)
	if err == nil {
		err = b.store.Reset(ctx, req.Key, req.Policy)
	}
	if err != nil {
		return err
	}
	b.clock.Advance(time.Microsecond)
	if _, err = b.store.Decide(ctx, req); err != nil {
		return err
	}
	look := req
	look.Cost = 0
	for _, units := range []int64{0, 9} {
		err := b.store.Settle(ctx, driver.Settlement{Request: req, At: before.At, Units: units})
		if err != nil {
			return err
		}
		if res, err := b.store.Decide(ctx, look); err != nil || res.Remaining() != 6 {
			return fmt.Errorf("%d of 10 are left after a charge from before a reset became %d, want 6 (%v)", res.Remaining(), units, err)
		}
	}
	return nil
}

// blocked: exactly the refusals of a window begin a block, of the subjects that refuse, and it lasts as long as it should.
func (b *bench) blocked() error {
	ctx, key := context.Background(), 0
	for seed := range uint64(16) {
		rng := rand.New(rand.NewPCG(seed, 11))
		by := driver.Block{Refusals: 1 + int64(seed)%4, Window: 15e6 * (1 + rng.Int64N(8)), Length: 30e6 * (1 + rng.Int64N(9))}
		type subject struct {
			req      driver.Request
			refusals []int64
			ends     int64
			admitted int64
		}
		var subjects [2]subject
		for i := range subjects {
			key++
			req, err := b.request(fmt.Sprint("blocked", key), 1, sash.Every(2, 3*time.Minute), sash.Every(50, 3*time.Hour))
			if err != nil {
				return err
			}
			req.Policy.Block = by
			subjects[i].req = req
		}
		last, made := "", int64(0) // the last call with an ID that was admitted, and when
		for step := range 80 {
			b.clock.Advance(time.Duration(rng.IntN(4)) * 15 * time.Second)
			now := b.clock.Now().UnixMicro()
			ended := slices.ContainsFunc(subjects[:], func(s subject) bool {
				return s.ends > 0 && s.ends <= now || len(s.refusals) > 0 && s.refusals[0] <= now-by.Window
			})
			if rng.IntN(15) == 0 && !ended { // a store may have forgotten what had ended before the clock went back
				b.clock.Advance(-3 * time.Minute)
				now = b.clock.Now().UnixMicro()
			}
			some := [...][]subject{subjects[:1], subjects[1:], subjects[1:], subjects[:], subjects[:]}[rng.IntN(5)]
			reqs, out, was := make([]driver.Request, len(some)), false, some[0].ends
			for i := range some {
				s := &some[i]
				reqs[i] = s.req
				s.ends = min(s.ends, now+by.Length)
				out = out || s.ends > now
			}
			if len(some) == 1 && rng.IntN(4) == 0 {
				reqs[0].Cost = 0
			}
			var answers []driver.Answer
			var err error
			switch {
			case len(some) == 2:
				answers, err = b.store.DecideAll(ctx, reqs)
			case &some[0] == &subjects[1]:
				answers = make([]driver.Answer, 1)
				answers[0], err = b.store.Decide(ctx, reqs[0])
			case rng.IntN(4) == 0 && reqs[0].Cost > 0 && last != "" && now-made < driver.RepeatTime.Microseconds(): // a call that was admitted before
				res, err := b.store.DecideOnce(ctx, last, reqs[0])
				if err != nil || !res.Allowed() || res.Blocked {
					return fmt.Errorf("step %d: a repetition got %+v, %v", step, res, err)
				}
				some[0].ends = was // it does not look at the block
				continue
			default:
				answers = make([]driver.Answer, 1)
				if reqs[0].Cost == 0 {
					answers[0], err = b.store.Decide(ctx, reqs[0])
					break
				}
				id := fmt.Sprint("id", seed, step)
				if answers[0], err = b.store.DecideOnce(ctx, id, reqs[0]); err == nil && answers[0].Allowed() {
					last, made = id, now
				}
			}
			if err != nil {
				return err
			}
			for i := range some {
				s, got := &some[i], &answers[i]
				if all := answers[0].Allowed() && answers[len(some)-1].Allowed(); all {
					s.admitted += reqs[i].Cost
				}
				if !out && !got.Allowed() && reqs[i].Cost > 0 {
					s.ends = 0
					for k := range s.refusals {
						s.refusals[k] = min(s.refusals[k], now)
					}
					s.refusals = append(slices.DeleteFunc(s.refusals, func(at int64) bool { return at <= now-by.Window }), now)
					if int64(len(s.refusals)) == by.Refusals {
						s.refusals, s.ends = nil, now+by.Length
					}
				}
				if got.Blocked != (s.ends > now) || got.Blocked && got.Retry() < s.ends-now {
					return fmt.Errorf("seed %d, step %d, subject %d: blocked %v for %d, want until %d at %d", seed, step, i, got.Blocked, got.Retry(), s.ends, now)
				}
				if name := b.store.Key(s.req.Key, s.req.Policy); s.ends > now {
					keys, err := b.scripts.client.Keys(ctx, "*block:{"+name+"}*").Result()
					if err != nil || len(keys) != 1 {
						return fmt.Errorf("the keys of a block are %v (%v)", keys, err)
					}
					if left := b.scripts.client.PTTL(ctx, keys[0]).Val(); left < 0 {
						return fmt.Errorf("the key of a block has no expiry")
					}
				}
			}
		}
		b.clock.Advance(10 * time.Minute) // longer than a block
		for i := range subjects {
			look := subjects[i].req
			look.Cost = 0
			res, err := b.store.Decide(ctx, look)
			if err != nil {
				return err
			}
			if left := res.Statuses()[1].Remaining; b.algorithm.Exact() && left != 50-subjects[i].admitted {
				return fmt.Errorf("%d of 50 are left, and %d calls were admitted", left, subjects[i].admitted)
			}
		}
	}
	return nil
}

// given: units that are given back out of a long log, under limits of two windows, are free at once, and only those.
func (b *bench) given() error {
	ctx := context.Background()
	wide, err := b.request("given", 2, sash.Every(1000, time.Hour), sash.Every(900, 10*time.Minute))
	if err != nil {
		return err
	}
	narrow, err := b.request("given", 2, sash.Every(900, 10*time.Minute))
	if err != nil {
		return err
	}
	truth := oracle.New()
	ask := func(req driver.Request) error {
		res, err := b.store.Decide(ctx, req)
		if err == nil {
			err = truth.Check(b.clock.Now(), []driver.Request{req}, []driver.Answer{res})
		}
		return err
	}
	give := func(req driver.Request, units int64) error {
		req.Cost = units
		want, sure := truth.Reward(b.clock.Now(), req)
		if !sure {
			return nil
		}
		res, err := b.store.Reward(ctx, req)
		if err != nil {
			return err
		}
		if res.Charged != want {
			return fmt.Errorf("of %d units %d were given back, want %d", units, res.Charged, want)
		}
		req.Cost = 0
		if err := truth.Check(b.clock.Now(), []driver.Request{req}, []driver.Answer{res}); err != nil {
			return fmt.Errorf("the answer to a reward of %d: %w", units, err)
		}
		for _, cost := range []int64{0, 400, 3} {
			wide.Cost, narrow.Cost = cost, cost
			if err := errors.Join(ask(wide), ask(narrow)); err != nil {
				return fmt.Errorf("after %d units were given back: %w", units, err)
			}
		}
		return nil
	}
	for n := range 260 {
		b.clock.Advance(2 * time.Second)
		wide.Cost = 1 + int64(n%3)
		if err := ask(wide); err != nil {
			return err
		}
	}
	for i, units := range []int64{1, 4, 40, 133, 1, 7, 90} {
		if err := give([]driver.Request{wide, narrow}[i%2], units); err != nil {
			return err
		}
		b.clock.Advance(time.Minute)
	}
	if err := errors.Join(give(narrow, 5000), give(wide, 5000)); err != nil { // all of it
		return err
	}
	b.clock.Advance(time.Second)
	return errors.Join(ask(wide), give(wide, 1), give(narrow, 2))
}

// midnight: calls on two sides of a boundary are counted apart, also in one step of the resolution.
func (b *bench) midnight() error {
	if b.algorithm == sash.SlidingCounter || b.algorithm == sash.GCRA {
		return nil
	}
	req, err := b.request("midnight", 1, sash.PerCalendar(9, sash.CalendarHour, nil), sash.Every(100, time.Minute))
	if err != nil {
		return err
	}
	truth := oracle.New()
	b.clock.Advance(b.clock.Now().Truncate(time.Hour).Add(time.Hour - time.Microsecond).Sub(b.clock.Now()))
	for range 4 {
		res, err := b.store.Decide(context.Background(), req)
		if err != nil {
			return err
		}
		if err := truth.Check(b.clock.Now(), []driver.Request{req}, []driver.Answer{res}); err != nil {
			return err
		}
		b.clock.Advance(time.Microsecond)
	}
	return nil
}

// walks: random calls answer by the definition.
func (b *bench) walks() error {
	defer func() { b.scripts.skew = nil }()
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 3))
		b.scripts.skew = func() time.Duration { return time.Duration(rng.IntN(120)-60) * time.Hour / 2 }
		err := oracle.Walk(oracle.Setup{
			Store: b.store, Now: b.clock.Now, Advance: b.clock.Advance, Algorithm: b.algorithm,
			Steps: 60, Prefix: fmt.Sprint("walk", seed, ":"), Choose: rng.IntN,
		})
		if err != nil {
			return fmt.Errorf("walk %d: %w", seed, err)
		}
	}
	return nil
}

// chosen: random choices answer by the definition.
func (b *bench) chosen() error {
	for seed := range uint64(20) {
		err := oracle.WalkAny(oracle.Setup{
			Store: b.store, Now: b.clock.Now, Advance: b.clock.Advance, Algorithm: b.algorithm,
			Steps: 60, Prefix: fmt.Sprint("chosen", seed, ":"), Choose: rand.New(rand.NewPCG(seed, 4)).IntN,
		})
		if err != nil {
			return fmt.Errorf("choices %d: %w", seed, err)
		}
	}
	reqs := make([]driver.Request, driver.ChoiceGroup+2) // of which the first group is full
	for i := range reqs {
		req, err := b.request(fmt.Sprint("chosen", i), 1, sash.Every(1, 10*time.Second))
		if err != nil {
			return err
		}
		if reqs[i] = req; i < driver.ChoiceGroup {
			if _, err := b.store.Decide(context.Background(), req); err != nil {
				return err
			}
		}
	}
	if i, answer, err := b.store.DecideAny(context.Background(), reqs); err != nil || i != driver.ChoiceGroup || !answer.Allowed() {
		return fmt.Errorf("behind a full group subject %d is chosen: allowed %v, %w", i, answer.Allowed(), err)
	}
	return nil
}

// repeated: a call with an ID is remembered although its window is short and its log grows, with a ring that has turned.
func (b *bench) repeated() error {
	ctx, def := context.Background(), oracle.New()
	short, err := b.request("repeated", 1, sash.Every(200, time.Second))
	if err != nil {
		return err
	}
	more, err := b.request("repeated", 1, sash.Every(400, 2*time.Second), sash.Every(500, 3*time.Second))
	if err != nil {
		return err
	}
	calls := func(n int, req driver.Request, gap time.Duration) error {
		for range n {
			b.clock.Advance(gap)
			res, err := b.store.Decide(ctx, req)
			if err == nil {
				err = def.Check(b.clock.Now(), []driver.Request{req}, []driver.Answer{res})
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	if err := calls(6, short, 300*time.Millisecond); err != nil {
		return err
	}
	b.clock.Advance(time.Millisecond)
	first, err := b.store.DecideOnce(ctx, "id", short)
	if err == nil {
		err = def.Check(b.clock.Now(), []driver.Request{short}, []driver.Answer{first})
	}
	if err != nil {
		return err
	}
	made := b.clock.Now()
	for _, after := range []time.Duration{0, driver.RepeatTime - time.Microsecond, driver.RepeatTime + time.Second} {
		if err := calls(80, short, 5*time.Millisecond); err != nil {
			return err
		}
		if err := calls(10, more, time.Millisecond); err != nil {
			return err
		}
		b.clock.Advance(max(0, after-b.clock.Now().Sub(made)))
		again, err := b.store.DecideOnce(ctx, "id", more)
		if err != nil {
			return err
		}
		if (again.At != first.At) != (after > driver.RepeatTime) || !again.Allowed() {
			return fmt.Errorf("%v after a call of %d its repetition is decided at %d", b.clock.Now().Sub(made), first.At, again.At)
		}
	}
	return nil
}

// long: a subject that never rests for long keeps its charges, although its key's expiry passes again
// and again.
func (b *bench) long() error {
	tr := traffic{
		name:  "long",
		plans: [][]sash.Limit{{sash.Every(30, 20*time.Second)}}, calls: 150, gap: 2 * time.Second, cost: 4, oracle: true,
	}
	return tr.run(b.algorithm, b.store, memstore.New(&memstore.Options{Now: b.clock.Now}), b.clock)
}

// deep: logs of some hundred entries.
func (b *bench) deep() error {
	if !b.algorithm.Exact() {
		return nil
	}
	for _, tr := range []traffic{
		{
			name:  "one window",
			plans: [][]sash.Limit{{sash.Every(50, 10*time.Second)}}, calls: 500, gap: 300 * time.Millisecond, cost: 3,
		},
		{
			name: "two windows",
			plans: [][]sash.Limit{
				{sash.Every(700, 10*time.Minute), sash.Every(30, 10*time.Second)},
				{sash.Every(30, 10*time.Second)},
			},
			calls: 1500, gap: 700 * time.Millisecond, cost: 30, silent: 500, back: 300,
		},
	} {
		tr.oracle = true
		if err := tr.run(b.algorithm, b.store, memstore.New(&memstore.Options{Now: b.clock.Now}), b.clock); err != nil {
			return fmt.Errorf("%s: %w", tr.name, err)
		}
	}
	return b.settled()
}

// settled: units that are given back out of a long log are free at once, and only those; what a call took
// beyond its cost is charged where the call was.
func (b *bench) settled() error {
	ctx := context.Background()
	req, err := b.request("settled", 2, sash.Every(1000, time.Hour), sash.Every(900, 10*time.Minute))
	if err != nil {
		return err
	}
	truth := oracle.New()
	ask := func(req driver.Request) (driver.Answer, error) {
		res, err := b.store.Decide(ctx, req)
		if err == nil {
			err = truth.Check(b.clock.Now(), []driver.Request{req}, []driver.Answer{res})
		}
		return res, err
	}
	var results []driver.Answer
	for range 300 {
		b.clock.Advance(time.Second)
		res, err := ask(req)
		if err != nil {
			return err
		}
		results = append(results, res)
	}
	worth := []int64{0, 0, 1, 40, 0, 0, 0, 7}
	for n, i := range []int{299, 298, 63, 64, 150, 0, 1, 297} {
		set := driver.Settlement{Request: req, At: results[i].At, Source: results[i].Source, Units: worth[n%len(worth)], ID: fmt.Sprint("s", i)}
		truth.Settle(b.clock.Now(), set)
		for range 2 { // once is enough
			if err := b.store.Settle(ctx, set); err != nil {
				return err
			}
		}
		for _, cost := range []int64{0, 700, 4} {
			look := req
			look.Cost = cost
			if _, err := ask(look); err != nil {
				return fmt.Errorf("after charge %d was settled: %w", i, err)
			}
		}
		b.clock.Advance(time.Minute)
	}
	return nil
}

// moved: a charge that a clock that went back has moved takes nothing from others when it is given back, and
// what it took more is charged all the same.
func (b *bench) moved() error {
	if !b.algorithm.Exact() {
		return nil
	}
	ctx := context.Background()
	for i, c := range []struct{ units, left int64 }{{0, 8}, {9, 4}} {
		req, err := b.request(fmt.Sprint("moved", i), 5, sash.Every(20, time.Minute))
		if err != nil {
			return err
		}
		look, other := req, req
		look.Cost, other.Cost = 0, 7
		res, err := b.store.Decide(ctx, req)
		if err != nil {
			return err
		}
		b.clock.Advance(-time.Second)
		if _, err := b.store.Decide(ctx, look); err != nil {
			return err
		}
		b.clock.Advance(2 * time.Second)
		if _, err := b.store.Decide(ctx, other); err != nil {
			return err
		}
		if err := b.store.Settle(ctx, driver.Settlement{Request: req, At: res.At, Source: res.Source, Units: c.units, ID: req.Key}); err != nil {
			return err
		}
		if res, err = b.store.Decide(ctx, look); err != nil || res.Remaining() != c.left {
			return fmt.Errorf("%d of 20 are left after a charge that was moved became %d, want %d (%v)", res.Remaining(), c.units, c.left, err)
		}
	}
	return nil
}
