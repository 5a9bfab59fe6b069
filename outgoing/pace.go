package outgoing

import (
	"math"
	"strings"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
)

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
