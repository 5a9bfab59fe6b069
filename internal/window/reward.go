package window

import (
	"math"

	"example.com/sash/driver"
	"example.com/sash/internal/threshold"
)

// Force charges a cost whether or not there is room, and sets out to the statuses after that.
func Force(s State, now, cost int64, limits []driver.Limit, out []driver.Status) (refusals uint64) {
	s.Charge(now, cost, limits)
	return s.Look(now, 0, limits, out)
}

// Reward implements State. It stops at a full entry, which may stand for more than it holds, and at entries that lie
// ahead.
func (l *Log) Reward(now, units int64, limits []driver.Limit) (given int64) {
	l.redate(now)
	cut := now
	for i := range limits {
		from, _ := limits[i].Cut(now)
		cut = min(cut, from)
	}
	p := l.after(cut)
	base, end := l.before(p), p
	for end < l.head && int64(l.before(end)-base) < units {
		if e := l.slot(end); e.at > now || int64(e.sum-l.before(end)) >= threshold.Log.Units {
			break
		}
		end++
	}
	given = min(units, int64(l.before(end)-base))
	if given > 0 && l.booked != nil {
		l.booked.gaps = true
	}
	for q := p; q < l.head; q++ {
		e := l.slot(q)
		e.sum -= min(e.sum-base, uint64(given))
	}
	for l.head > l.lo && l.slot(l.head-1).sum == l.before(l.head-1) {
		l.head--
	}
	return given
}

// Reward implements State. The charges of the window before are the oldest.
func (c *Counter) Reward(now, units int64, limits []driver.Limit) (given int64) {
	for i := range limits {
		k := c.at(now, limits[i].Window)
		before := min(units, k.prev)
		since := min(units-before, k.current)
		if before+since > 0 {
			k.prev, k.current = k.prev-before, k.current-since
			c.put(k)
			given = max(given, before+since)
		}
	}
	return given
}

// Reward implements State.
func (f *Fixed) Reward(now, units int64, limits []driver.Limit) (given int64) {
	for i := range limits {
		c := f.at(now, &limits[i])
		if back := min(units, c.count); back > 0 {
			c.count -= back
			f.put(c)
			given = max(given, back)
		}
	}
	return given
}

// Reward implements State. A unit that is paid in part counts as one that is given back.
func (g *GCRA) Reward(now, units int64, limits []driver.Limit) (given int64) {
	for i := range limits {
		limit := &limits[i]
		m := g.at(now, limit.Window)
		if m == nil || m.owed(now) == 0 {
			continue
		}
		owed := m.owed(now)
		given = max(given, min(units, int64(math.Ceil(owed*float64(limit.Units)/float64(limit.Window)))))
		m.at, m.debt = now, math.Max(0, owed-float64(units)*float64(limit.Window)/float64(limit.Units))
	}
	return given
}
