package outgoing

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"example.com/sash"
)

// levels are the values to which responses have lowered one limit. A zero level lowers nothing.
type levels struct {
	fallen level // from fields that report less left than the store: it rises at once, by the limit's units per window
	held   level // from refusals, and from limits that fields state: see held.go
}

// A level is at units until at, and then rises by the limit's units per span. A suspicion lasts until at and lowers nothing.
type level struct {
	units     int64
	at        time.Time
	span      time.Duration
	paced     bool // a guess from refusals, under which requests are paced
	suspected bool
}

// A window identifies a limit of a bucket, whatever the share of a call.
type window struct {
	length time.Duration
	period sash.Period
}

func (b *bucket) known(l sash.Limit) levels { return b.levels[window{l.Window, l.Period}] }

// learn sets the levels of a limit. It drops all levels that have risen, because a route may return other limits for each call.
func (b *bucket) learn(l sash.Limit, known levels, now time.Time) {
	if b.levels == nil {
		b.levels = map[window]levels{}
	}
	maps.DeleteFunc(b.levels, func(_ window, c levels) bool { return c.fallen.risen(now) && c.held.risen(now) })
	b.levels[window{l.Window, l.Period}] = known
	b.keep(known.fallen.ends())
	b.keep(known.held.ends())
}

// span returns the length of a limit's window, and an approximate length for a calendar limit.
func span(l sash.Limit) time.Duration {
	switch l.Period {
	case sash.CalendarHour:
		return time.Hour
	case sash.CalendarDay:
		return 24 * time.Hour
	case sash.CalendarMonth:
		return 31 * 24 * time.Hour
	}
	return l.Window
}

func (c level) risen(now time.Time) bool { return !now.Before(c.ends()) }

func (c level) ends() time.Time {
	if c.suspected {
		return c.at
	}
	return c.at.Add(c.span)
}

// rises returns the time until a share of the level has risen by the given units.
func (c level) rises(units int64, whole sash.Limit, percent int, now time.Time) time.Duration {
	perSpan := float64(whole.Units*int64(percent)) / 100
	return max(c.at.Sub(now), 0) + max(time.Duration(float64(units)*float64(c.span)/perSpan), time.Millisecond)
}

func (c level) now(limit sash.Limit, now time.Time) int64 {
	risen := float64(limit.Units) * float64(now.Sub(c.at)) / float64(c.span)
	return min(c.units+int64(min(max(risen, 0), sash.MaxUnits)), limit.Units)
}

// lowers reports whether the level lowers its limit now.
func (c level) lowers(now time.Time) bool { return !c.suspected && !c.risen(now) }

func (b *bucket) lowest(l sash.Limit, now time.Time) (lowest level, lower bool) {
	known := b.known(l)
	if held := known.held; held.lowers(now) && (!known.fallen.lowers(now) || held.now(l, now) < known.fallen.now(l, now)) {
		return held, true
	}
	return known.fallen, known.fallen.lowers(now)
}

// apply returns a bucket's limits, lowered to their levels and to the share of the call's class, and the wait until the levels
// have room for the cost. Rises is the time until a level is gone, or math.MaxInt64. No call is booked later than that.
func (c *buckets) apply(s sash.Subject, percent int, now time.Time) (limits []sash.Limit, wait, rises time.Duration) {
	limits, rises = make([]sash.Limit, len(s.Limits)), math.MaxInt64
	b := c.lock(s.Key)
	defer c.mu.Unlock()
	for i, whole := range s.Limits {
		l := whole
		l.Units = share(whole.Units, percent)
		l.Name = cmp.Or(l.Name, whole.String()) // keeps the name of the configured limit
		fallen, lower := b.lowest(whole, now)
		if lower && s.Cost <= l.Units { // otherwise the limiter reports that the cost can never fit
			l.Units = share(fallen.now(whole, now), percent)
			rises = min(rises, max(0, fallen.ends().Sub(now)))
			if missing := s.Cost - l.Units; missing > 0 {
				wait = max(wait, fallen.rises(missing, whole, percent, now))
			}
		}
		limits[i] = l
	}
	return limits, wait, rises
}

// room returns how long a refused call has to wait. Each limit that refused it has room when charges have left
// the window, or when its level has risen by the missing units. Keys in results begin with the prefix.
func (c *buckets) room(call Call, subjects []sash.Subject, res sash.Result, prefix string) (wait time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	refused, now := res.Limits(), time.Now()
	for i, s := range subjects {
		if len(refused) < len(s.Limits) || refused[0].Key != prefix+s.Key {
			continue // a store that charges one subject after the other reports only the one that refused
		}
		b := c.at(s.Key, now)
		for j, whole := range s.Limits {
			l := refused[j]
			if !l.Refused {
				continue
			}
			until := l.RetryAfter
			if fallen, lower := b.lowest(whole, now); lower {
				if missing := s.Cost - l.Remaining; missing > 0 { // otherwise the call is only paced
					until = min(until, fallen.rises(missing, whole, call.percent(i), now))
				}
			}
			wait = max(wait, until)
		}
		refused = refused[len(s.Limits):]
	}
	return wait
}

func (c *buckets) charged(subjects []sash.Subject) {
	for _, s := range subjects {
		c.lock(s.Key).sent += s.Cost
		c.mu.Unlock()
	}
}

func (c *buckets) sent(key string) int64 {
	b := c.lock(key)
	defer c.mu.Unlock()
	return b.sent
}

// learn compares what the API reports as left with the store's count at the admission of the call plus the units that this process has
// charged since. It leaves the call's own units out of the latter, since the API may not have counted them when it answered.
func (c *buckets) learn(call Call, counted []sash.LimitResult, quotas []quota, now time.Time) {
	b := c.lock(call.Key)
	defer c.mu.Unlock()
	meanwhile := max(b.sent-call.before-call.Cost, 0)
	for i, l := range call.Limits {
		for _, q := range quotas {
			if !q.hasRemaining || !describes(q, l, call) {
				continue
			}
			units := min(usedOf(counted[i])+meanwhile+q.remaining, l.Units)
			if q.limit > 0 && q.window == span(l) {
				units = min(units, q.limit)
				if q.limit < l.Units {
					b.hold(l, held(q.limit, holdFor(heldWindows*span(l), heldLeast), now), now)
				}
			}
			known := b.known(l)
			if units < l.Units && (known.fallen.risen(now) || units < known.fallen.now(l, now)) {
				known.fallen = level{units: units, at: now, span: span(l)}
				b.learn(l, known, now)
			}
		}
	}
}

// describes reports whether a quota is about a limit: it has the same window or the same units, or there is no other limit.
func describes(q quota, l sash.Limit, call Call) bool {
	switch {
	case q.unit != call.Unit:
		return false
	case q.window > 0:
		return q.window == span(l)
	}
	return len(call.Limits) == 1 || q.limit == l.Units
}

// explained reports whether fields explain a refusal: a limit of the call has nothing left, or each limit has
// room, so the reason is another one. Fields of a quota with other units, such as that of a day, say neither.
func explained(call Call, quotas []quota) bool {
	room := 0
	for _, l := range call.Limits {
		says := func(q quota) bool {
			same := q.window == span(l) || q.limit == l.Units || q.limit == 0
			return q.hasRemaining && same && describes(q, l, call)
		}
		if slices.ContainsFunc(quotas, func(q quota) bool { return says(q) && q.remaining == 0 }) {
			return true
		}
		if slices.ContainsFunc(quotas, says) {
			room++
		}
	}
	return room == len(call.Limits)
}
