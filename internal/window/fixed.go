package window

import (
	"math"

	"example.com/sash/driver"
)

// A Fixed is the fixed window: a counter per window that starts at a multiple of its length since the
// epoch, or at a boundary of the calendar. It admits up to twice its units around a boundary.
type Fixed struct {
	counters []fixedCounter
}

type fixedCounter struct {
	limit      driver.Limit // whose window it counts; its units do not matter
	start, end int64
	count      int64
}

// period returns the window around now: start <= now < end.
func period(l *driver.Limit, now int64) (start, end int64) {
	if l.Period != 0 {
		return l.Bounds(now)
	}
	start = now - mod(now, l.Window)
	return start, start + l.Window
}

// at returns a copy of the counter of a limit's window at now. If a counter starts later than now, the clock went back:
// it becomes the counter of now.
func (f *Fixed) at(now int64, limit *driver.Limit) fixedCounter {
	start, end := period(limit, now)
	for i := range f.counters {
		c := &f.counters[i]
		if !c.limit.SameWindow(limit) {
			continue
		}
		if now < c.start {
			c.start, c.end = start, end
		}
		if now < c.end {
			return *c
		}
	}
	return fixedCounter{limit: *limit, start: start, end: end}
}

// put stores a counter.
func (f *Fixed) put(c fixedCounter) {
	for i := range f.counters {
		if f.counters[i].limit.SameWindow(&c.limit) {
			f.counters[i] = c
			return
		}
	}
	f.counters = append(f.counters, c)
}

// Look implements State.
func (f *Fixed) Look(now, cost int64, limits []driver.Limit, out []driver.Status) (refusals uint64) {
	for i := range limits {
		limit := &limits[i]
		c := f.at(now, limit)
		used, end := c.count, c.end
		s := driver.Status{Remaining: max(0, limit.Units-used)}
		if used > 0 {
			s.Release, s.Reset = end-now, end-now
		}
		if used+cost > limit.Units {
			refusals |= 1 << i
			s.Retry = end - now
		}
		out[i] = s
	}
	return refusals
}

// Charge implements State.
func (f *Fixed) Charge(now, cost int64, limits []driver.Limit) {
	for i := range limits {
		c := f.at(now, &limits[i])
		c.count = min(c.count+cost, math.MaxInt64/2) // refusals may be charged without end
		f.put(c)
	}
}

// Settle implements State.
func (f *Fixed) Settle(_, at, more int64, limits []driver.Limit) {
	for i := range limits {
		for j := range f.counters {
			c := &f.counters[j]
			if c.limit.SameWindow(&limits[i]) && c.start <= at && at < c.end {
				c.count = max(0, c.count+more)
			}
		}
	}
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

// Expires implements State.
func (f *Fixed) Expires() int64 {
	var t int64
	for i := range f.counters {
		t = max(t, f.counters[i].end)
	}
	return t
}
