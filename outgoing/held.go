package outgoing

import (
	"context"
	"math"
	"net/http"
	"slices"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
)

// A refusal without fields says that one of the API's windows is full, and nothing else. So the limit is held at what
// went through before: the units that the store counted, without the call's own. It stays there for twelve windows, and
// then rises by the limit's units in as long again: an API with a lower limit than the configured one refuses about one
// request in that time. A limit that the API states is held in the same way, see learn.
const (
	heldWindows = 12
	heldLeast   = time.Minute
	heldMost    = time.Hour
)

func holdTime(window time.Duration) time.Duration {
	return max(heldLeast, min(heldWindows*window, heldMost)).Truncate(time.Second)
}

// held returns a level that begins now.
func held(units int64, l sash.Limit, now time.Time) level {
	d := holdTime(span(l))
	return level{units: units, at: now.Add(d), span: d}
}

// refused lowers the limit whose window is most likely full, the one with the smallest part left, and returns it with its
// level. It does nothing for a request that was sent before the last refusal was learnt from.
func (c *levels) refused(call Call, counted []sash.LimitResult, sent, now time.Time) (l sash.Limit, low level, ok bool) {
	full, least, used := -1, 2.0, int64(0)
	for i, l := range call.Limits {
		u := counted[i].Limit.Units - counted[i].Remaining
		if left := float64(l.Units-u) / float64(l.Units); l.Window > 0 && left < least {
			full, least, used = i, left, u
		}
	}
	if full < 0 {
		return l, low, false // the reset of a calendar limit is known, and ends the cool-down
	}
	l = call.Limits[full]
	id := idOf(call.Key, l)
	c.mu.Lock()
	defer c.mu.Unlock()
	// The first refusal can be of a request that arrived too early, so three quarters go on at most; the next one
	// within the window says that the limit is lower, and halves that. When less than a quarter went through, the
	// refusal has another reason than this window, and the cool-down is all.
	through, most, fewest := used-call.Cost, l.Units*3/4, l.Units/4
	if known, lower := c.held.get(id); lower && !known.risen(now) {
		lowered := known.at.Add(-known.span)
		if sent.Before(lowered) {
			return l, low, false
		}
		most, fewest = known.now(l, now), known.now(l, now)/2
		if now.Sub(lowered) < l.Window && most > l.Units/2 { // what went through is mostly from before
			most /= 2
		}
	}
	low = held(max(min(through, most), call.Cost), l, now)
	if low.paced = true; through < max(fewest, 1) || low.units >= l.Units {
		return l, low, false
	}
	c.held.set(id, low, now)
	return l, low, true
}

// paces reports whether the requests of a bucket are paced because refusals have lowered its limit: then the next refusal
// comes before many more are sent.
func (c *levels) paces(key string, limits []driver.Limit) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range limits {
		id := levelID{key, time.Duration(l.Window) * time.Microsecond, l.Period}
		if low, ok := c.held.get(id); ok && low.paced && !low.risen(time.Now()) {
			return true
		}
	}
	return false
}

// explained reports whether a refusal's fields say why: that a limit of the call has nothing left, or that each has room,
// so that the reason is another one. Fields of a quota with other units, such as that of a day, say neither.
func explained(call Call, quotas []quota) bool {
	room := 0
	for _, l := range call.Limits {
		says := func(q quota) bool {
			same := q.window == span(l) || q.limit == l.Units || q.limit == 0 || q.unit == unitPercent
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

// hold holds a limit at a level, and reports whether that is lower. The caller holds c.mu.
func (c *levels) hold(id levelID, l sash.Limit, low level, now time.Time) bool {
	known, ok := c.held.get(id)
	lower := !ok || known.risen(now) || low.now(l, now) < known.now(l, now)
	if lower {
		c.held.set(id, low, now)
	}
	return lower
}

// lowered reports whether a limit is held lower than when a call was booked under it.
func (c *levels) lowered(admitted *admission) bool {
	now, call := time.Now(), &admitted.call
	c.mu.Lock()
	defer c.mu.Unlock()
	for n, s := range call.subjects() {
		booked := admitted.places[n].Result().Limits()
		for i, whole := range s.Limits[:min(len(s.Limits), len(booked))] {
			held, ok := c.held.get(idOf(s.Key, whole))
			if ok && !held.risen(now) && share(held.now(whole, now), call.percent(n)) < booked[i].Limit.Units {
				return true
			}
		}
	}
	return false
}

// The store keeps a level for the other processes as a cool-down of a key that is the bucket's and the limit's. It
// lasts as long as the level, a whole number of seconds; the microseconds beyond are the level in millionths of the
// limit.
const millionths = 1_000_000

func (c *coolDowns) levelKey(key string, l sash.Limit) string {
	return c.prefix + sash.Key("level", key, driver.FormatWindow(l.Window))
}

// writeLevel writes a level to the store, for the other processes. If the store fails, each learns from a refusal of its own.
func (c *coolDowns) writeLevel(ctx context.Context, key string, l sash.Limit, low level) {
	if c.store == nil {
		return
	}
	part := min(int64(math.Round(float64(low.units)*millionths/float64(l.Units))), millionths-1)
	_, _ = c.store.CoolDown(ctx, c.levelKey(key, l), driver.CoolDown{Length: 2*low.span.Microseconds() + part})
}

// readLevel returns the level that a process has written, if there is one.
func (c *coolDowns) readLevel(ctx context.Context, key string, l sash.Limit, now time.Time) (low level, ok bool) {
	if c.store == nil || l.Window == 0 {
		return low, false
	}
	there, err := c.store.CoolDown(ctx, c.levelKey(key, l), driver.CoolDown{})
	if err != nil || there.Left <= 0 {
		return low, false
	}
	part := there.Length % millionths
	half := time.Duration(there.Length-part) * time.Microsecond / 2
	low.units = max(int64(math.Round(float64(part)*float64(l.Units)/millionths)), 1)
	low.at = now.Add(time.Duration(there.Left)*time.Microsecond - half)
	low.span, low.paced = half, true
	return low, true
}

// learnFull learns from a refusal that no field explains that a window is full, and writes that for the other processes.
func (t *Transport) learnFull(req *http.Request, call Call, counted []sash.LimitResult, sent, now time.Time) {
	l, low, ok := t.learned.refused(call, counted, sent, now)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(req.Context()), time.Second)
	defer cancel()
	t.cool.writeLevel(ctx, call.Key, l, low)
}

// listen looks for levels that other processes have learnt, and reports whether one is lower than what this one knew. For
// a call that is not charged yet it looks more often: a look between a charge and its request makes that one late.
func (t *Transport) listen(ctx context.Context, subjects []sash.Subject, uncharged bool) (lower bool) {
	for _, s := range subjects {
		if !t.cool.hears(s.Key, uncharged) {
			continue
		}
		looked := time.Now()
		for _, l := range s.Limits {
			now := time.Now()
			if low, ok := t.cool.readLevel(ctx, s.Key, l, now); ok {
				t.learned.mu.Lock()
				lower = t.learned.hold(idOf(s.Key, l), l, low, now) || lower
				t.learned.mu.Unlock()
			}
		}
		t.cool.listened(s.Key, looked)
	}
	return lower
}
