package modeltest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/judge"
	"example.com/sash/memstore"
	"example.com/sash/redisstore"
)

// A bookWalk is random calls with bookings on Redis and in memory, whose answers are equal. Those in memory are held
// against the definition by themselves.
type bookWalk struct {
	redis    *redisstore.Store
	memory   *memstore.Store
	clock    *judge.Clock
	rng      *rand.Rand
	name     string
	policies []*driver.Policy
	held     []driver.Settlement
	latest   int64 // the latest instant of a charge
	moved    int64 // what that was when the clock went back
	ids      int
	little   bool // the clock also goes back by little
	trace    []string
	until    map[string]int64 // the last booking of a key, unless it was settled
	seen     map[string]int   // what happened how often
}

// bookPlans are limits of walks with bookings: few units, so that most calls wait. Each plan of a walk has the first
// limit, the longest, so that both stores remember as much.
var bookPlans = [][]sash.Limit{
	{sash.Every(5, 10*time.Second)},
	{sash.Every(12, 20*time.Second), sash.Every(4, 3*time.Second), sash.Every(9, 12*time.Second)},
	{sash.Every(9, 25*time.Second), sash.Every(6, 10*time.Second), sash.Every(3, time.Second)},
	{sash.PerCalendar(40, sash.CalendarHour, nil), sash.Every(20, time.Minute)},
	{sash.PerCalendar(30, sash.CalendarDay, nil), sash.Every(7, 10*time.Second+time.Microsecond)},
}

func newBookWalk(redis *redisstore.Store, clock *judge.Clock, seed uint64, a sash.Algorithm, seen map[string]int) (*bookWalk, error) {
	rng := rand.New(rand.NewPCG(seed, 29))
	w := &bookWalk{
		redis: redis, memory: memstore.New(&memstore.Options{Now: clock.Now}), clock: clock, rng: rng,
		name: fmt.Sprint("book ", walks.Add(1), " "), seen: seen, until: make(map[string]int64),
	}
	opts := &sash.Options{Algorithm: a}
	if a == sash.SlidingBuckets {
		opts.Resolution = []time.Duration{time.Second, 300 * time.Millisecond}[rng.IntN(2)]
	}
	plan := bookPlans[rng.IntN(len(bookPlans))]
	for n := range 1 + rng.IntN(3) {
		limits := slices.Clone(plan[:1+n%len(plan)])
		slices.Reverse(limits)
		policy, err := sash.NewPolicy(opts, limits...)
		if err != nil {
			return nil, err
		}
		w.policies = append(w.policies, policy)
	}
	return w, nil
}

func (w *bookWalk) run(steps int) error {
	for range steps {
		w.move()
		if err := w.step(); err != nil {
			return fmt.Errorf("%w\nafter\n\t%s", err, strings.Join(w.trace[max(0, len(w.trace)-160):], "\n\t"))
		}
	}
	return nil
}

func (w *bookWalk) note(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf("%d: ", w.clock.Now().UnixMicro()%1e12)+fmt.Sprintf(format, args...))
}

func (w *bookWalk) move() {
	switch n := w.rng.IntN(100); {
	case n < 50:
		w.clock.Advance(time.Duration(w.rng.IntN(2_000_000)) * time.Microsecond)
	case n == 50:
		w.clock.Advance(time.Duration(w.rng.IntN(3)) * 20 * time.Second)
	case n < 54 || w.little && n < 70:
		back := 8_000_000
		if n >= 54 {
			back = 1500 // around STEP_BACK
		}
		w.clock.Advance(-time.Duration(w.rng.IntN(back)) * time.Microsecond)
		w.note("the clock went back")
		w.seen["the clock went back"]++
		clear(w.until)
		w.held, w.moved = nil, w.latest // what is given back differs where charges were moved
	}
}

func (w *bookWalk) request() driver.Request {
	policy := w.policies[w.rng.IntN(len(w.policies))]
	req := driver.Request{Key: w.name + []string{"a", "a", "b"}[w.rng.IntN(3)], Policy: policy, MaySettle: w.rng.IntN(2) == 0}
	req.Cost = min(policy.MostUnits(), int64(w.rng.IntN(4)))
	switch w.rng.IntN(5) {
	case 0, 1:
		req.Within = w.rng.Int64N(30_000_000)
	case 2:
		req.Within = driver.MaxAhead
	}
	return req
}

func (w *bookWalk) step() error {
	ctx := context.Background()
	req := w.request()
	decide := func(s driver.Batcher) ([]driver.Answer, error) {
		answer, err := s.Decide(ctx, req)
		return []driver.Answer{answer}, err
	}
	reqs := []driver.Request{req}
	switch n := w.rng.IntN(20); {
	case n < 3 && len(w.held) > 0:
		return w.settle()
	case n == 3:
		return w.reset()
	case n == 4:
		w.ids = max(1, w.ids+w.rng.IntN(2))
		id := fmt.Sprint("call ", w.ids-w.rng.IntN(min(3, w.ids)))
		w.note("%q", id)
		decide = func(s driver.Batcher) ([]driver.Answer, error) {
			answer, err := s.(driver.Deduplicator).DecideOnce(ctx, id, req)
			return []driver.Answer{answer}, err
		}
	case n < 7:
		other := w.request()
		if req.Key == other.Key {
			break
		}
		other.Within = req.Within
		req.Cost, other.Cost = max(1, req.Cost), max(1, other.Cost)
		reqs[0] = req
		reqs = append(reqs, other)
		decide = func(s driver.Batcher) ([]driver.Answer, error) { return s.(driver.MultiStore).DecideAll(ctx, reqs) }
	case n < 9:
		for range w.rng.IntN(4) {
			other := w.request()
			other.Key, other.Policy = req.Key, req.Policy
			other.Cost = min(other.Cost, req.Policy.MostUnits())
			reqs = append(reqs, other)
		}
		decide = func(s driver.Batcher) ([]driver.Answer, error) { return s.DecideEach(ctx, reqs) }
	}
	return w.compare(reqs, decide)
}

// compare has both stores decide the same.
func (w *bookWalk) compare(reqs []driver.Request, decide func(driver.Batcher) ([]driver.Answer, error)) error {
	want, err := decide(w.memory)
	if err != nil {
		return err
	}
	got, err := decide(w.redis)
	for i, req := range reqs {
		w.note("%s: cost %d within %d of %v: %s", req.Key, req.Cost, req.Within, req.Policy.Limits, shown(&want[i]))
		if err == nil && got[i].Firm && got[i].At < w.until[req.Key] {
			err = fmt.Errorf("a refusal is firm although a booking can be given back")
		}
		if err == nil && shown(&got[i]) != shown(&want[i]) {
			err = fmt.Errorf("on Redis, request %d of %d:\n%s\nin memory:\n%s", i, len(reqs), shown(&got[i]), shown(&want[i]))
		}
		if want[i].Allowed() && req.Cost > 0 {
			w.latest = max(w.latest, want[i].At)
			if want[i].Delay > 0 {
				w.seen["booked ahead"]++
				w.until[req.Key] = want[i].At
			}
		}
		if want[i].Allowed() && req.Cost > 0 && want[i].At > w.moved {
			w.held = append(w.held, driver.Settlement{Request: req, At: want[i].At, Delay: want[i].Delay})
		}
	}
	return err
}

func shown(a *driver.Answer) string {
	return fmt.Sprintf("refusals %b, at %d, delay %d, %+v", a.Refusals, a.At%1e12, a.Delay, a.Statuses())
}

func (w *bookWalk) settle() error {
	i := w.rng.IntN(len(w.held))
	set := w.held[i]
	w.held = slices.Delete(w.held, i, i+1)
	delete(w.until, set.Request.Key)
	set.Units = []int64{0, 0, 1, set.Request.Cost + 2}[w.rng.IntN(4)]
	w.note("settle %d of %d of %s to %d", set.Request.Cost, set.At%1e12, set.Request.Key, set.Units)
	if set.At > w.clock.Now().UnixMicro() {
		w.seen["a booking was settled ahead of its time"]++
	}
	if err := w.memory.Settle(context.Background(), set); err != nil {
		return err
	}
	return w.redis.Settle(context.Background(), set)
}

func (w *bookWalk) reset() error {
	if w.rng.IntN(2) > 0 {
		return nil
	}
	key := w.name + "a"
	delete(w.until, key)
	w.note("reset")
	if err := w.memory.Reset(context.Background(), key, w.policies[0]); err != nil {
		return err
	}
	defer w.clock.Advance(time.Millisecond) // one in memory does not decide in the microsecond of a reset
	return w.redis.Reset(context.Background(), key, w.policies[0])
}

// booked: random bookings are those of memory, with rings and steps of any size.
func (b *bench) booked() error {
	if b.algorithm != sash.SlidingLog && b.algorithm != sash.SlidingBuckets {
		return nil
	}
	small, clock, _ := b.small()
	for seed := range uint64(45) { // the last 15 on a clock that also goes back by little
		store, now := b.store, b.clock
		if seed%2 == 0 {
			store, now = small, clock
		}
		w, err := newBookWalk(store, now, seed%30, b.algorithm, make(map[string]int))
		if err == nil {
			w.little = seed >= 30
			err = w.run(150)
		}
		if err != nil {
			return fmt.Errorf("walk %d with bookings: %w", seed, err)
		}
	}
	return nil
}

// small returns the same build of the scripts with small steps.
func (b *bench) small() (*redisstore.Store, *judge.Clock, *scripter) {
	store, clock, scripts := virtual(b.t, b.server, b.edit)
	scripts.thresholds = smallSteps
	return store, clock, scripts
}

// edged: the edges of bookings are those of memory.
func (b *bench) edged() error {
	if b.algorithm != sash.SlidingLog && b.algorithm != sash.SlidingBuckets {
		return nil
	}
	_, _, small := b.small()
	return bookEdges(b.store, b.clock, small, b.algorithm)
}
