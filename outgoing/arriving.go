package outgoing

import (
	"context"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
)

// arriving is the store that the limiter uses. It lengthens windows by the spread, so that limits hold where requests arrive, and
// adds a limit that paces requests. A settlement finds its charge by the charge's time, so the lengths do not matter to it.
type arriving struct {
	driver.Passthrough
	prefix  string        // of keys, before those of buckets
	given   time.Duration // the spread; zero to learn it, negative for none
	known   *buckets
	settles atomic.Bool // a call had a Settle
}

// Do implements [driver.Store]. It moves bookings forward only if calls are settled: a booking was made under
// the limits of that time, and at a distance from the booking before it.
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

func (a *arriving) lock(req *driver.Request) *bucket {
	return a.known.lock(strings.TrimPrefix(req.Key, a.prefix))
}

// shape returns the request for the store, and the index of the limit that an additional last limit paces, or -1. It does
// not lengthen windows of approximate algorithms, which have no exact bound, or calendar periods, whose end is fixed.
func (a *arriving) shape(req driver.Request) (shaped driver.Request, paced int) {
	if !req.Policy.Algorithm.Exact() {
		return req, -1
	}
	b := a.lock(&req)
	defer a.known.mu.Unlock()
	policy, shortest := *req.Policy, -1
	policy.Limits = make([]driver.Limit, len(req.Policy.Limits), len(req.Policy.Limits)+1)
	for i, l := range req.Policy.Limits {
		if w := time.Duration(l.Window) * time.Microsecond; w > 0 {
			if shortest < 0 || l.Window < req.Policy.Limits[shortest].Window {
				shortest, b.length = i, w
			}
			longer := max(a.given, 0)
			if a.given == 0 {
				longer = b.ways.spread(w)
			}
			l.Window += longer.Microseconds()
		}
		policy.Limits[i] = l
	}
	shaped = req
	shaped.Policy = &policy
	if shortest >= 0 && len(policy.Limits) < driver.MaxLimits {
		if pace, ok := b.pace(&req, policy.Limits[shortest], a.settles.Load(), time.Now()); ok {
			policy.Limits = append(policy.Limits, pace)
			return shaped, shortest
		}
	}
	return shaped, -1
}

// fold removes the pacing limit from the answer. A refusal by it becomes a refusal by the limit that it paces.
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
		// If every other limit has room for another call of this cost, the request waits only for its distance from the one before.
		noRoom := func(s driver.Status) bool { return s.Remaining < req.Cost }
		if paced < 0 || slices.ContainsFunc(answer.Statuses(), noRoom) {
			a.lock(req).fills(time.Duration(answer.Delay) * time.Microsecond)
			a.known.mu.Unlock()
		}
	}
	return answer
}

// pace returns a limit that paces a request in addition to the limits of its bucket. Shortest is the limit with the shortest window.
// When the API refuses a request, it also refuses those in flight. So requests that may wait are paced over all processes: evenly if
// refusals have lowered the limit, and otherwise by the longest recent travel time. That distance is at most half an even one while a
// window is full, and at most an even one under a suspicion. See Arrival and What it learns in the documentation of the package.
func (b *bucket) pace(req *driver.Request, shortest driver.Limit, settles bool, now time.Time) (pace driver.Limit, paced bool) {
	if req.Within == 0 {
		return pace, false
	}
	// The even pace is the call's cost per the time in which the limit admits that cost, a millisecond at least.
	each := float64(shortest.Window) / float64(shortest.Units)
	units := max(req.Cost, int64(math.Ceil(float64(sash.MinWindow.Microseconds())/each)))
	evenly := driver.Limit{Units: units, Window: int64(math.Ceil(float64(units) * each))}
	most := time.Duration(evenly.Window) * time.Microsecond
	switch lowered, suspected := b.guessed(req.Policy.Limits, now); {
	case lowered:
		return evenly, true
	case suspected:
	case settles || !b.full.After(now): // an estimate does not say how far apart
		return pace, false
	default:
		most /= 2
	}
	apart := min(b.ways.longest(), most)
	return driver.Limit{Units: req.Cost, Window: apart.Microseconds()}, apart >= sash.MinWindow
}

// fills records that the bucket is full for a time, and paces requests for the shortest window after that.
func (b *bucket) fills(lasts time.Duration) {
	if ends := time.Now().Add(lasts + b.length); b.length > 0 && ends.After(b.full) {
		b.full = ends
		b.keep(ends)
	}
}

// exhausted records that the API has nothing left in a bucket for a time. Requests wait for its end, and then start paced.
func (c *buckets) exhausted(key string, left time.Duration) {
	c.lock(key).fills(left)
	c.mu.Unlock()
}
