package outgoing

import (
	"context"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
)

// arriving is the store as the limiter sees it. Behind it windows are longer by the spread of the ways to the API, so
// that limits hold where requests arrive, and requests that are paced have one more limit. Results and errors have the
// limits as they were configured. A settlement finds its charge by its time, whatever the limits; the other powers are
// not used.
type arriving struct {
	driver.Passthrough
	prefix  string // of keys, before those of buckets
	spreads *spreads
	learned *levels

	mu   sync.Mutex
	full *memory[string, time.Time] // until when a bucket counts as full, by the store's key, guarded by mu
}

func newArriving(store driver.Store, prefix string, spread time.Duration) *arriving {
	over := func(until, now time.Time) bool { return !until.After(now) }
	return &arriving{
		Passthrough: driver.Passthrough{Next: store}, prefix: prefix,
		spreads: newSpreads(spread), learned: newLevels(), full: newMemory[string](over),
	}
}

// Decide implements [driver.Store].
func (a *arriving) Decide(ctx context.Context, req driver.Request) (driver.Answer, error) {
	shaped, paced := a.shape(req)
	answer, err := a.Next.Decide(ctx, shaped)
	if err != nil {
		return driver.Answer{}, err
	}
	return a.fold(&req, answer, paced), nil
}

// DecideAll implements [driver.MultiStore].
func (a *arriving) DecideAll(ctx context.Context, reqs []driver.Request) ([]driver.Answer, error) {
	shaped, paced := a.shapeAll(reqs)
	answers, err := a.Passthrough.DecideAll(ctx, shaped)
	if err != nil || len(answers) != len(reqs) {
		return answers, err
	}
	for i := range answers {
		answers[i] = a.fold(&reqs[i], answers[i], paced[i])
	}
	return answers, nil
}

// Extend implements [driver.Extender]. It brings no booking forward: a request that waits is for limits as they were known
// when it was booked, and for the distance to the one before it.
func (a *arriving) Extend(ctx context.Context, set driver.Settlement) (int64, error) {
	if set.Delay > 0 {
		return 0, driver.ErrUnsupported
	}
	return a.Passthrough.Extend(ctx, set)
}

// DecideAny implements [driver.Chooser].
func (a *arriving) DecideAny(ctx context.Context, reqs []driver.Request) (int, driver.Answer, error) {
	shaped, paced := a.shapeAll(reqs)
	chosen, answer, err := a.Passthrough.DecideAny(ctx, shaped)
	if err != nil || chosen < 0 || chosen >= len(reqs) {
		return chosen, answer, err
	}
	return chosen, a.fold(&reqs[chosen], answer, paced[chosen]), nil
}

func (a *arriving) shapeAll(reqs []driver.Request) (shaped []driver.Request, paced []int) {
	shaped, paced = make([]driver.Request, len(reqs)), make([]int, len(reqs))
	for i, req := range reqs {
		shaped[i], paced[i] = a.shape(req)
	}
	return shaped, paced
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

// fold returns the answer to a request, without its last limit if that paces: if that refused, the limit that it paces
// did.
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
	if req.Within > 0 && len(answer.Statuses()) == len(req.Policy.Limits) {
		a.booked(req, paced >= 0, &answer)
	}
	return answer
}

// What is on its way when an API refuses the first request is refused too, so the fewer are on their way together, the
// fewer are refused. Requests that may wait are therefore paced, over all processes:
//
//   - While refusals have lowered the limit, its units are spread evenly over the shortest window.
//   - While a window is full, or the API has nothing left, and for a window after that, they start at least as far apart
//     as the longest way that a request has taken, and at most half as far as evenly.
//   - While a refusal suggests that the limit is lower, likewise, and at most as far as evenly.
//
// Before that they start at once.

// pace returns the limit that paces a request, in addition to those of its bucket, of which the one with the shortest
// window is given.
func (a *arriving) pace(req *driver.Request, shortest driver.Limit) (pace driver.Limit, paced bool) {
	if req.Within == 0 {
		return pace, false
	}
	evenly := even(shortest, req.Cost)
	lowered, suspected := a.learned.paces(strings.TrimPrefix(req.Key, a.prefix), req.Policy.Limits)
	if lowered {
		return evenly, true
	}
	most := time.Duration(evenly.Window) * time.Microsecond
	if !suspected {
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

// booked records that a request waits because a window is full, and not only for its distance to the one before: if it is
// paced, one that leaves no room for another of its cost.
func (a *arriving) booked(req *driver.Request, paced bool, answer *driver.Answer) {
	if answer.Delay == 0 {
		return
	}
	full := !paced
	for _, s := range answer.Statuses() {
		full = full || s.Remaining < req.Cost
	}
	if full {
		a.fills(req.Key, time.Duration(answer.Delay)*time.Microsecond, req.Policy.Limits)
	}
}

// exhausted records that the API has nothing left for a call's bucket for a time. Then requests wait for that, and not for
// a window.
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

// even returns the limit that spreads the units of another evenly over its window: as many units as the call costs, in
// the time that this takes at the limit's rate. A window has at least a millisecond.
func even(l driver.Limit, cost int64) driver.Limit {
	each := float64(l.Window) / float64(l.Units)
	units := max(cost, int64(math.Ceil(float64(sash.MinWindow.Microseconds())/each)))
	return driver.Limit{Units: units, Window: int64(math.Ceil(float64(units) * each))}
}
