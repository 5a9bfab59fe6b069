package outgoing

import (
	"math"
	"sync"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
)

// A pacer says how far apart the requests of a bucket start, over all processes. What is on its way when an API refuses
// the first request is refused too, so the fewer are on their way together, the fewer are refused.
//
//   - With Options.Pace the units of the shortest window are spread evenly over it.
//   - So they are for requests that wait, while refusals have lowered the limit.
//   - Other requests of mode Wait start at least as far apart as the longest way that a request has taken, and at most half
//     as far as evenly: while a window is full, or the API has nothing left, and for a window after that; and at most
//     as far as evenly while a refusal suggests that the limit is lower. Before that they start at once.
type pacer struct {
	always  bool
	learned *levels
	spreads *spreads

	mu   sync.Mutex
	full *memory[string, time.Time] // until when a bucket counts as full, by the store's key, guarded by mu
}

func newPacer(always bool, learned *levels, spreads *spreads) *pacer {
	over := func(until, now time.Time) bool { return !until.After(now) }
	return &pacer{always: always, learned: learned, spreads: spreads, full: newMemory[string](over)}
}

// limit returns the limit that paces a request, in addition to those of its bucket, of which the one with the shortest
// window is given. Key is the bucket's.
func (p *pacer) limit(req *driver.Request, key string, shortest driver.Limit) (pace driver.Limit, paced bool) {
	evenly := even(shortest, req.Cost)
	if p.always {
		return evenly, true
	}
	if req.Within == 0 {
		return pace, false
	}
	lowered, suspected := p.learned.paces(key, req.Policy.Limits)
	if lowered {
		return evenly, true
	}
	p.mu.Lock()
	until, _ := p.full.get(req.Key)
	p.mu.Unlock()
	most := time.Duration(evenly.Window) * time.Microsecond
	switch {
	case suspected:
	case until.After(time.Now()):
		most /= 2
	default:
		return pace, false
	}
	apart := min(p.spreads.longest(req.Key), most)
	return driver.Limit{Units: req.Cost, Window: apart.Microseconds()}, apart >= sash.MinWindow
}

// booked records that a request waits because a window is full, and not only for its distance to the one before: if it is
// paced, one that leaves no room for another of its cost.
func (p *pacer) booked(req *driver.Request, paced bool, answer *driver.Answer) {
	if answer.Delay == 0 {
		return
	}
	full, shortest := !paced, int64(math.MaxInt64)
	for i, s := range answer.Statuses() {
		full = full || s.Remaining < req.Cost
		if w := req.Policy.Limits[i].Window; w > 0 {
			shortest = min(shortest, w)
		}
	}
	if full && shortest < math.MaxInt64 {
		p.fills(req.Key, time.Duration(answer.Delay+shortest)*time.Microsecond)
	}
}

// exhausted records that the API has nothing left for a bucket for a time. Then requests wait for that, and not for a
// window.
func (p *pacer) exhausted(key string, limits []sash.Limit, left time.Duration) {
	shortest := time.Duration(math.MaxInt64)
	for _, l := range limits {
		if l.Window > 0 {
			shortest = min(shortest, l.Window)
		}
	}
	if shortest < math.MaxInt64 {
		p.fills(key, left+shortest)
	}
}

func (p *pacer) fills(key string, lasts time.Duration) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if until, _ := p.full.get(key); until.Before(now.Add(lasts)) {
		p.full.set(key, now.Add(lasts), now)
	}
}

// even returns the limit that spreads the units of another evenly over its window: as many units as the call costs, in
// the time that this takes at the limit's rate. A window has at least a millisecond.
func even(l driver.Limit, cost int64) driver.Limit {
	each := float64(l.Window) / float64(l.Units)
	units := max(cost, int64(math.Ceil(float64(sash.MinWindow.Microseconds())/each)))
	return driver.Limit{Units: units, Window: int64(math.Ceil(float64(units) * each))}
}
