package outgoing

import (
	"context"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
)

// arriving is the store as the limiter sees it. Behind it windows are longer by the spread of the ways to the API, so that limits hold
// where requests arrive, and requests that are paced have one more limit. Settlements find their charge by its time, whatever the limits.
type arriving struct {
	driver.Passthrough
	prefix  string // of keys, before those of buckets
	spreads *spreads
	learned *levels
	settles atomic.Bool // a call had a Settle

	mu   sync.Mutex
	full *memory[string, time.Time] // until when a bucket counts as full, by the store's key, guarded by mu
}

func newArriving(store driver.Store, prefix string, spread time.Duration) *arriving {
	over := func(until, now time.Time) bool { return !until.After(now) }
	return &arriving{
		Passthrough: driver.Passthrough{Store: store}, prefix: prefix,
		spreads: newSpreads(spread), learned: newLevels(), full: newMemory[string](over),
	}
}

// Do implements [driver.Store]. It brings bookings forward only where calls are settled: a request that waits is for limits as
// they were known when it was booked, and for the distance to the one before it.
func (a *arriving) Do(ctx context.Context, b *driver.Batch) error {
	forward := b.Ops[0].Kind == driver.Extend && b.Ops[0].Delay > 0
	if forward && !a.settles.Load() {
		return driver.ErrUnsupported
	}
	if !forward && b.Ops[0].Kind != driver.Charge {
		return a.Store.Do(ctx, b)
	}
	shaped, paced := b.Clone(), make([]int, len(b.Ops))
	for i := range b.Ops {
		shaped.Ops[i].Request, paced[i] = a.shape(b.Ops[i].Request)
	}
	if err := a.Store.Do(ctx, shaped); err != nil {
		return err
	}
	b.Take(shaped)
	for i := range b.Ops {
		if op := &b.Ops[i]; b.Mode != driver.Any || i == b.Chosen {
			op.Answer = a.fold(&op.Request, op.Answer, paced[i])
		}
	}
	return nil
}

// shape returns the request as the store gets it, and which limit is paced, by one more limit at the end: -1 if none is.
// Algorithms that approximate have no bound to keep, and calendar periods end when they end.
func (a *arriving) shape(req driver.Request) (shaped driver.Request, paced int) {
	if !req.Policy.Algorithm.Exact() {
		return req, -1
	}
	policy := *req.Policy
	policy.Limits = make([]driver.Limit, len(req.Policy.Limits), len(req.Policy.Limits)+1)
	paced = -1
	for i, l := range req.Policy.Limits {
		if l.Window > 0 {
			l.Window += a.spreads.of(req.Key, time.Duration(l.Window)*time.Microsecond).Microseconds()
			if paced < 0 || l.Window < policy.Limits[paced].Window {
				paced = i
			}
		}
		policy.Limits[i] = l
	}
	shaped = req
	shaped.Policy = &policy
	if paced >= 0 && len(policy.Limits) < driver.MaxLimits {
		if pace, ok := a.pace(&req, policy.Limits[paced]); ok {
			policy.Limits = append(policy.Limits, pace)
			return shaped, paced
		}
	}
	return shaped, -1
}

// fold returns the answer to a request, without its last limit if that paces: if that refused, the limit that it paces did.
func (a *arriving) fold(req *driver.Request, answer driver.Answer, paced int) driver.Answer {
	statuses := answer.Statuses()
	if last := len(statuses) - 1; paced >= 0 && paced < last {
		pace, kept := statuses[last], slices.Clone(statuses[:last])
		refusals := answer.Refusals
		if bit := uint64(1) << last; refusals&bit != 0 {
			refusals = refusals&^bit | 1<<paced
			kept[paced].Retry = max(kept[paced].Retry, pace.Retry)
		}
		answer.Set(answer.At, refusals, kept)
	}
	if req.Within > 0 && answer.Delay != 0 && len(answer.Statuses()) == len(req.Policy.Limits) {
		// A request that is paced may wait only for its distance to the one before, if there is room for another of its cost.
		noRoom := func(s driver.Status) bool { return s.Remaining < req.Cost }
		if paced < 0 || slices.ContainsFunc(answer.Statuses(), noRoom) {
			a.fills(req.Key, time.Duration(answer.Delay)*time.Microsecond, req.Policy.Limits)
		}
	}
	return answer
}

// pace returns the limit that paces a request, in addition to those of its bucket, of which the one with the shortest window is given.
// What is on its way when an API refuses the first request is refused too, so those that may wait are paced, over all processes, as
// the documentation of the package says under Arrival and What it learns: evenly where refusals have lowered the limit, and otherwise
// as far apart as the longest way, at most half as far as evenly while a window is full, and as far while a refusal is a suspicion.
func (a *arriving) pace(req *driver.Request, shortest driver.Limit) (pace driver.Limit, paced bool) {
	if req.Within == 0 {
		return pace, false
	}
	// As many units as the call costs in the time that this takes at the limit's rate, which is at least a millisecond.
	each := float64(shortest.Window) / float64(shortest.Units)
	units := max(req.Cost, int64(math.Ceil(float64(sash.MinWindow.Microseconds())/each)))
	evenly := driver.Limit{Units: units, Window: int64(math.Ceil(float64(units) * each))}
	lowered, suspected := a.learned.paces(strings.TrimPrefix(req.Key, a.prefix), req.Policy.Limits)
	if lowered {
		return evenly, true
	}
	most := time.Duration(evenly.Window) * time.Microsecond
	if !suspected {
		if a.settles.Load() { // an estimate is no measure of how far apart
			return pace, false
		}
		a.mu.Lock()
		_, full := a.full.get(req.Key, time.Now())
		a.mu.Unlock()
		if !full {
			return pace, false
		}
		most /= 2
	}
	apart := min(a.spreads.longest(req.Key), most)
	return driver.Limit{Units: req.Cost, Window: apart.Microseconds()}, apart >= sash.MinWindow
}

// exhausted records that the API has nothing left for a call's bucket for a time. Then requests wait for that, and not for a window.
func (a *arriving) exhausted(call *Call, left time.Duration) {
	limits := make([]driver.Limit, len(call.Limits))
	for i, l := range call.Limits {
		limits[i].Window = l.Window.Microseconds()
	}
	a.fills(a.prefix+call.Key, left, limits)
}

// fills records that a bucket is full for a time, and for the shortest window after that.
func (a *arriving) fills(key string, lasts time.Duration, limits []driver.Limit) {
	shortest := int64(math.MaxInt64)
	for _, l := range limits {
		if l.Window > 0 {
			shortest = min(shortest, l.Window)
		}
	}
	if shortest == math.MaxInt64 {
		return
	}
	now := time.Now()
	ends := now.Add(lasts + time.Duration(shortest)*time.Microsecond)
	a.mu.Lock()
	defer a.mu.Unlock()
	if until, _ := a.full.get(key, now); until.Before(ends) {
		a.full.set(key, ends, now)
	}
}

// spreads are by how much the ways of requests to each bucket differ: δ in docs/algorithms.md. They are taken from the time between the
// charge and the first byte of the response, which includes the API and the way back. So the spread of these times is at least that of
// the ways, as soon as a request has taken little of each.
type spreads struct {
	given time.Duration // zero to learn, negative for none

	mu   sync.Mutex
	seen *memory[string, *ways] // by key, guarded by mu
}

// Bounds of a learnt spread.
const (
	fewestWays    = 4                      // before as many requests the spread is unknown: a tenth of the window
	unknownMost   = time.Second            // and no more than this
	spreadLeast   = 100 * time.Millisecond // and no more than a fiftieth of the window: any process is late now and then
	spreadMost    = 2 * time.Second        // and no more than a quarter. A new connection whose first packet is lost takes one more
	spreadSteps   = 25                     // of the largest spread, so that few different windows reach the store
	waysKept      = time.Hour              // after which those of an unused bucket are unknown again
	waysInStretch = 64
)

func newSpreads(given time.Duration) *spreads {
	forgotten := func(w *ways, now time.Time) bool { return now.Sub(w.last) > waysKept }
	return &spreads{given: given, seen: newMemory[string](forgotten)}
}

// took records what a request took from its charge to the response, and whether it had a new connection.
func (s *spreads) took(key string, d time.Duration, fresh bool) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	w, ok := s.seen.get(key, now)
	if !ok {
		w = new(ways)
		s.seen.set(key, w, now)
	}
	w.add(d, fresh, now)
}

// of returns by how much a window of a bucket has to be longer at the store.
func (s *spreads) of(key string, window time.Duration) time.Duration {
	if s.given != 0 {
		return max(s.given, 0)
	}
	unknown := min(window/10, unknownMost)
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.last(key)
	d, known := w.spread()
	if !known {
		return unknown
	}
	d = max(d, min(window/50, spreadLeast))
	most := min(window/4, spreadMost)
	step := max(most/spreadSteps, time.Microsecond).Truncate(time.Microsecond)
	return min((d+step-1)/step*step, most.Truncate(time.Microsecond))
}

// longest returns the longest way that a bucket's last requests have taken, as a power of two of milliseconds, so that few
// different windows reach the store. It is zero if that is less than a millisecond, or unknown.
func (s *spreads) longest(key string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	longest, d := s.last(key).all().max, time.Millisecond
	for d < longest {
		d *= 2
	}
	if longest < time.Millisecond {
		return 0
	}
	return d
}

func (s *spreads) last(key string) *ways {
	if w, ok := s.seen.get(key, time.Now()); ok {
		return w
	}
	return new(ways)
}

// ways are the shortest and the longest of a bucket's last requests. Those with new connections are longer and rarer,
// and are kept apart, so that many others do not push them out.
type ways struct {
	warm, fresh [2]stretch // the current stretch and the one before
	last        time.Time
}

// A stretch is up to waysInStretch requests in a row.
type stretch struct {
	n        int
	min, max time.Duration
}

func (w *ways) add(d time.Duration, fresh bool, now time.Time) {
	stretches := &w.warm
	if fresh {
		stretches = &w.fresh
	}
	if stretches[0].n == waysInStretch {
		stretches[1], stretches[0] = stretches[0], stretch{}
	}
	b := &stretches[0]
	if b.n == 0 {
		b.min, b.max = d, d
	}
	b.n, b.min, b.max = b.n+1, min(b.min, d), max(b.max, d)
	w.last = now
}

func (w *ways) all() (all stretch) {
	for _, s := range [...]stretch{w.warm[0], w.warm[1], w.fresh[0], w.fresh[1]} {
		switch {
		case s.n == 0:
		case all.n == 0:
			all = s
		default:
			all = stretch{all.n + s.n, min(all.min, s.min), max(all.max, s.max)}
		}
	}
	return all
}

// spread returns the difference of the longest and the shortest way. The fewer there were, the more the next may exceed
// them, so it is longer by 8/n: the next ones of n equally distributed ways are then within it.
func (w *ways) spread() (d time.Duration, known bool) {
	all := w.all()
	if all.n < fewestWays {
		return 0, false
	}
	d = all.max - all.min
	return d + 8*d/time.Duration(all.n), true
}
