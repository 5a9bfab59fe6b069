package modeltest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/drivertest"
	"example.com/sash/memstore"
)

// blocked: exactly the refusals of a window begin a block, of the subjects that refuse, and it lasts as long as it should,
// as in memory. The first subject's calls have IDs, some of them that of a call that was admitted before.
func (b *bench) blocked() error {
	memory := memstore.New(&memstore.Options{Now: b.clock.Now})
	for seed := range uint64(16) {
		rng := rand.New(rand.NewPCG(seed, 11))
		by := driver.Block{Refusals: 1 + int64(seed)%4, Window: 30e6 * (1 + rng.Int64N(8)), Length: 15e6 * (1 + rng.Int64N(12))}
		var reqs [2]driver.Request
		for i := range reqs {
			limits := []sash.Limit{sash.Every(2, 3*time.Minute), sash.Every(50, 3*time.Hour)}
			if seed%3 == 2 && b.algorithm != sash.SlidingCounter && b.algorithm != sash.GCRA {
				limits = []sash.Limit{sash.PerCalendar(3, sash.CalendarHour, nil), sash.PerCalendar(50, sash.CalendarDay, nil)}
			}
			req := b.request(fmt.Sprint("blocked", seed, ":", i), 1, limits...)
			req.Policy.Block = by
			reqs[i] = req
		}
		last, made := "", int64(0)        // the last call with an ID that was admitted, and when
		forgotten := int64(math.MaxInt64) // when something ends that a store may have forgotten if the clock goes back then
		for step := range 80 {
			b.clock.Advance(time.Duration(rng.IntN(4)) * 15 * time.Second)
			now := b.clock.Now().UnixMicro()
			if rng.IntN(4) == 0 && now < forgotten {
				b.clock.Advance(-3 * time.Minute)
				now = b.clock.Now().UnixMicro()
				forgotten = min(forgotten, now+min(by.Window, by.Length))
			}
			some, id := slices.Clone([...][]driver.Request{reqs[:1], reqs[1:], reqs[1:], reqs[:], reqs[:]}[rng.IntN(5)]), ""
			switch {
			case len(some) == 1 && rng.IntN(4) == 0:
				some[0].Cost = 0
			case len(some) == 1 && some[0].Key == reqs[0].Key:
				if id = fmt.Sprint("id", seed, ":", step); last != "" && now-made < driver.RepeatTime.Microseconds() && rng.IntN(4) == 0 {
					id = last
				}
			}
			got, err := askBlocker(b.store, id, some)
			want, err2 := askBlocker(memory, id, some)
			check(errors.Join(err, err2))
			for i := range some {
				g, w := &got[i], &want[i]
				if g.Allowed() != w.Allowed() || g.Blocked != w.Blocked || w.Blocked && g.Retry() != w.Retry() {
					return fmt.Errorf("seed %d, step %d, %s: blocked %v, %s; in memory %v, %s",
						seed, step, some[i].Key, g.Blocked, shown(g), w.Blocked, shown(w))
				}
				if !w.Allowed() {
					forgotten = min(forgotten, now+min(by.Window, by.Length))
				}
			}
			if id != "" && got[0].Allowed() {
				last, made = id, got[0].At
			}
		}
		b.clock.Advance(10 * time.Minute) // longer than a block
		for _, look := range reqs {
			look.Cost = 0
			got, err := drivertest.Of(b.store).Decide(context.Background(), look)
			want, err2 := drivertest.Of(memory).Decide(context.Background(), look)
			if left := want.Statuses()[1].Remaining; err != nil || err2 != nil || b.algorithm.Exact() && got.Statuses()[1].Remaining != left {
				return fmt.Errorf("seed %d: %s, in memory %d are left (%v, %v)", seed, shown(&got), left, err, err2)
			}
		}
	}
	return nil
}

// askBlocker makes a call on one subject, with an ID or without, or on several.
func askBlocker(store driver.Store, id string, reqs []driver.Request) (answers []driver.Answer, err error) {
	answers = make([]driver.Answer, 1)
	switch {
	case len(reqs) > 1:
		return drivertest.Of(store).All(context.Background(), reqs...)
	case id != "":
		answers[0], err = drivertest.Of(store).Once(context.Background(), id, reqs[0])
	default:
		answers[0], err = drivertest.Of(store).Decide(context.Background(), reqs[0])
	}
	return answers, err
}

// cooled: random cool-downs, on a clock that also goes back, are those of memory.
func (b *bench) cooled() error {
	if b.algorithm != driver.SlidingLog {
		return nil
	}
	ctx, memory := context.Background(), memstore.New(&memstore.Options{Now: b.clock.Now})
	random := rand.New(rand.NewPCG(3, 9))
	for i := range 400 {
		step := time.Duration(random.IntN(20e6)) * time.Microsecond
		if i%20 == 19 {
			step = -step
		}
		b.clock.Advance(step)
		begin := driver.CoolDown{Length: max(0, int64(random.IntN(16e6))-4e6), Guessed: random.IntN(2) == 0}
		want, err := drivertest.Of(memory).Cool(ctx, "cooled", begin)
		got, err2 := drivertest.Of(b.store).Cool(ctx, "cooled", begin)
		if err := errors.Join(err, err2); err != nil || got != want {
			return fmt.Errorf("step %d: %+v answers %+v, %v; in memory %+v", i, begin, got, err, want)
		}
	}
	return b.cooledOnRedis(ctx)
}

// cooledOnRedis: a key expires when its cool-down is no longer kept, and not before, and a look writes nothing.
func (b *bench) cooledOnRedis(ctx context.Context) error {
	for i, length := range []time.Duration{time.Second, 1500*time.Millisecond + time.Microsecond, time.Minute} {
		key := fmt.Sprint("expiry", i)
		began := time.Now()
		must(drivertest.Of(b.plain).Cool(ctx, key, driver.CoolDown{Length: length.Microseconds()}))
		before := must(b.changes())
		must(drivertest.Of(b.plain).Cool(ctx, key, driver.CoolDown{}))
		if after, err := b.changes(); err != nil || after != before {
			return fmt.Errorf("a look wrote: %s changes, before %s (%v)", after, before, err)
		}
		names, err := b.scripts.client.Keys(ctx, "*:"+key).Result()
		if err != nil || len(names) != 1 {
			return fmt.Errorf("the keys of a cool-down are %q, %v", names, err)
		}
		lives := must(b.scripts.client.PTTL(ctx, names[0]).Result())
		kept := length + max(length, 10*time.Second)
		if lives > kept+2*time.Millisecond || lives < kept-time.Since(began)-time.Millisecond {
			return fmt.Errorf("a cool-down of %v lives for %v, want %v", length, lives, kept)
		}
	}
	return nil
}

// gapped: where units come back before bookings, bookings of one subject or two start when they do in memory, whose gaps are
// those of the definition.
func (b *bench) gapped() error {
	if b.algorithm != sash.SlidingLog && b.algorithm != sash.SlidingBuckets {
		return nil
	}
	small, smallClock, _ := b.small()
	for seed := range uint64(60) {
		store, clock := b.store, b.clock
		if seed%2 == 0 {
			store, clock = small, smallClock
		}
		r := rand.New(rand.NewPCG(seed, 31))
		limits := slices.Clone(bookPlans[seed%5])
		policy := edgePolicy(b.algorithm, limits...)
		least := slices.MinFunc(policy.Limits, func(a, b driver.Limit) int { return int(a.Units - b.Units) }).Units
		memory := memstore.New(&memstore.Options{Now: clock.Now})
		var held []driver.Settlement
		for step := range 90 {
			clock.Advance(time.Duration(r.Int64N(1_500_000)) * time.Microsecond)
			keys := []string{fmt.Sprint("gaps", seed), fmt.Sprint("gaps beside ", seed)}
			if units := 1 + r.Int64N(2); r.IntN(8) == 0 {
				key := keys[r.IntN(2)]
				both(store, memory, func(s drivertest.Calls) {
					must(s.GiveBack(context.Background(), driver.Request{Key: key, Policy: policy, Cost: units}))
				})
				held = nil // of which the units are gone
				continue
			}
			if n := len(held); n > 0 && r.IntN(3) == 0 {
				set := held[n-1-r.IntN(min(n, 6))]
				set.Units = r.Int64N(set.Request.Cost + 1)
				both(store, memory, func(s drivertest.Calls) { check(s.Settle(context.Background(), set)) })
				held = slices.DeleteFunc(held, func(h driver.Settlement) bool { return h.ID == set.ID })
				continue
			}
			req := driver.Request{Key: keys[0], Policy: policy, Cost: 1 + r.Int64N(least), MaySettle: true}
			if r.IntN(4) > 0 {
				req.Within = r.Int64N(60_000_000)
			}
			reqs := []driver.Request{req, req}
			reqs[1].Key, reqs[1].Cost = keys[1], 1+r.Int64N(least)
			switch r.IntN(2 + int(seed)/20) { // so some worlds have only those of one subject
			case 0:
				reqs = reqs[:1]
			case 1:
				reqs = reqs[1:]
			}
			var answers []driver.Answer
			both(store, memory, func(s drivertest.Calls) { answers = append(answers, must(s.All(context.Background(), reqs...))...) })
			for i, req := range reqs {
				got, want := &answers[i], &answers[len(reqs)+i]
				if got.At != want.At || got.Delay != want.Delay || got.Refusals != want.Refusals || !reflect.DeepEqual(got.Statuses(), want.Statuses()) {
					return fmt.Errorf("gaps %d, step %d: %d subjects, cost %d within %d: %s, want %s", seed, step, len(reqs), req.Cost, req.Within, shown(got), shown(want))
				}
				if got.Allowed() {
					held = append(held, driver.Settlement{Request: req, At: got.At, Delay: got.Delay, Source: driver.FromStore, ID: fmt.Sprint(seed, "-", step, "-", i)})
				}
			}
		}
	}
	return nil
}

// counted: charges of a limiter that counts refused calls are not forgotten, also where units came back before bookings.
func (b *bench) counted() error {
	if b.algorithm != sash.SlidingLog {
		return nil
	}
	ctx, key := context.Background(), "gaps counted"
	few := newPolicy(b.t, nil, sash.PerMinute(10))
	many := newPolicy(b.t, &sash.Options{CountRefused: true}, sash.PerMinute(100))
	var last driver.Answer
	req := driver.Request{Key: key, Policy: few, Cost: 1, MaySettle: true, Within: 3_600_000_000}
	for range 11 {
		b.clock.Advance(time.Millisecond)
		last = must(drivertest.Of(b.store).Decide(ctx, req))
	}
	set := driver.Settlement{Request: req, At: last.At, Delay: last.Delay, Source: driver.FromStore}
	check(drivertest.Of(b.store).Settle(ctx, set))
	admitted := 0
	for range 500 {
		b.clock.Advance(time.Millisecond)
		answer := must(drivertest.Of(b.store).Decide(ctx, driver.Request{Key: key, Policy: many, Cost: 1}))
		if answer.Allowed() {
			admitted++
		}
	}
	if admitted > 90 {
		return fmt.Errorf("%d calls of a limit of 100 are admitted beside 10 others", admitted)
	}
	return nil
}

// both calls f with each store.
func both(a, b driver.Store, f func(drivertest.Calls)) {
	f(drivertest.Of(a))
	f(drivertest.Of(b))
}
