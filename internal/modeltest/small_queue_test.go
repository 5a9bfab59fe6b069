package modeltest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/judge"
	"example.com/sash/internal/threshold"
	"example.com/sash/memstore"
)

// A queueWalk is random bookings and other calls on one subject, seen by callers who wait in real time while the store's
// clock goes back now and then.
type queueWalk struct {
	store  smallStore
	clock  *judge.Clock
	rng    *rand.Rand
	real   time.Time
	limits []sash.Limit
	policy *driver.Policy
	held   []*place
	met    map[string]int
}

// A place is a call that was admitted.
type place struct {
	set    driver.Settlement
	starts time.Time // in real time
	units  int64
}

func (w *queueWalk) run(steps int) error {
	for step := range steps {
		if err := w.step(); err != nil {
			return fmt.Errorf("step %d: %w", step, err)
		}
	}
	return nil
}

func (w *queueWalk) step() error {
	d := time.Duration(w.rng.IntN(3000)) * time.Millisecond
	w.real = w.real.Add(d)
	w.clock.Advance(d)
	w.held = slices.DeleteFunc(w.held, func(p *place) bool { return w.real.Sub(p.starts) > 200*time.Second })
	if len(w.held) > 0 && w.rng.IntN(5) == 0 {
		p := w.held[w.rng.IntN(len(w.held))]
		if p.units == p.set.Request.Cost { // not settled yet
			p.set.Units = int64(w.rng.IntN(2)) * (p.units / 2)
			p.units = p.set.Units
			return w.store.Settle(context.Background(), p.set)
		}
	}
	req := driver.Request{Key: "k", Cost: 1 + w.rng.Int64N(2)*w.rng.Int64N(5), Policy: w.policy, MaySettle: true}
	if w.rng.IntN(2) == 0 {
		req.Within = int64(w.rng.IntN(100_000_000))
	}
	res, err := w.store.Decide(context.Background(), req)
	if err == nil {
		err = w.check(req, res)
	}
	if err == nil && res.Allowed() && w.rng.IntN(20) == 0 { // between two calls: so the store sees how far
		w.met["the clock went back"]++
		w.clock.Advance(-time.Duration(2+w.rng.IntN(20_000)) * time.Millisecond) // a step of one moves nothing
		req.Cost = 0
		_, err = w.store.Decide(context.Background(), req)
	}
	return err
}

// check judges an answer as its caller would.
func (w *queueWalk) check(req driver.Request, res driver.Answer) error {
	ahead := slices.ContainsFunc(w.held, func(p *place) bool { return p.units > 0 && p.starts.After(w.real) })
	switch {
	case !res.Allowed():
		w.met["a call was refused"]++
		return nil
	case res.Delay > req.Within:
		return fmt.Errorf("a call within %d is booked %d ahead", req.Within, res.Delay)
	case res.Delay > 0:
		w.met["a call was booked"]++
	case ahead:
		w.met["a call went ahead of bookings"]++
	}
	p := &place{starts: w.real.Add(time.Duration(res.Delay) * time.Microsecond), units: req.Cost}
	p.set = driver.Settlement{Request: req, At: res.At, Delay: res.Delay, Source: res.Source}
	var history []judge.Call
	instants := make(map[time.Time]bool)
	for _, other := range w.held {
		if req.Within > 0 && other.units > 0 && other.set.Delay > 0 && other.starts.After(p.starts) {
			return fmt.Errorf("a call starts at %v, and one that was booked before at %v", p.starts, other.starts)
		}
		history = append(history, judge.Call{At: other.starts, Cost: other.units})
		if other.units > 0 && other.starts.After(w.real) {
			instants[other.starts] = true
		}
	}
	if len(instants) > smallAhead {
		return fmt.Errorf("bookings start at %d instants ahead", len(instants))
	}
	w.held = append(w.held, p)
	return judge.CheckHistory(w.limits, append(history, judge.Call{At: p.starts, Cost: p.units}))
}

const (
	smallAhead = 4
	smallNear  = 3
)

// In the small world logs are full, few bookings may lie ahead, and the clock goes back: whoever waits in real time
// starts in order, and never with too many others.
func TestBookingsInTheSmallWorld(t *testing.T) {
	before := threshold.Log
	defer func() { threshold.Log = before }()
	threshold.Log.Entries, threshold.Log.Units, threshold.Log.Ahead, threshold.Log.Walk = smallEntries, mostOfEntry, smallAhead, smallNear
	met := make(map[string]int)
	for seed := range uint64(400 * *times) {
		rng := rand.New(rand.NewPCG(seed, 23))
		opts := &sash.Options{}
		if rng.IntN(2) == 0 {
			opts = &sash.Options{Algorithm: sash.SlidingBuckets, Resolution: 2 * time.Second}
		}
		limits := []sash.Limit{sash.Every(5+rng.Int64N(40), 60*time.Second), sash.Every(5+rng.Int64N(10), 7*time.Second)}
		limits = limits[rng.IntN(2):]
		policy := newPolicy(t, opts, limits...)
		clock := judge.NewClock(start)
		w := &queueWalk{
			store: memstore.New(&memstore.Options{Now: clock.Now}), clock: clock, rng: rng, real: start,
			limits: limits, policy: policy, met: met,
		}
		if err := w.run(300); err != nil {
			t.Fatalf("seed %d, %v, %v: %v", seed, policy.Algorithm, limits, err)
		}
	}
	t.Log(met)
	for _, event := range []string{"a call was booked", "a call was refused", "a call went ahead of bookings", "the clock went back"} {
		if met[event] < 1000 {
			t.Errorf("%d times %s", met[event], event)
		}
	}
}
