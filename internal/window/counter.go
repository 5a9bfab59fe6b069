package window

import (
	"math"

	"example.com/sash/driver"
)

// A Counter is the sliding window counter: the count of this window and of the one before it, weighted
// by how much of that one the sliding window still overlaps.
//
//	used = current + ceil(previous * (window - elapsed) / window)
//
// It takes constant space and assumes that the previous window's calls were spread evenly. A caller that sends them all at the window's
// end gets almost twice its units through one sliding window. Cloudflare described it in 2017.
type Counter struct {
	counters []counter
}

type counter struct {
	window        int64
	start         int64 // of the current window
	current, prev int64
}

// roll moves the counter to the window of now. If its window is later than now, the clock went back: its counts become
// those of the window of now.
func (c *counter) roll(now int64) {
	start := now - mod(now, c.window)
	switch {
	case start == c.start+c.window:
		c.prev, c.current = c.current, 0
	case start > c.start:
		c.prev, c.current = 0, 0
	}
	c.start = start
}

// used returns the weighted count d microseconds after now, if no call comes.
func (c *counter) used(now, d int64) int64 {
	at := now + d - c.start
	switch {
	case at < c.window:
		return c.current + int64(math.Ceil(float64(c.prev)*float64(c.window-at)/float64(c.window)))
	case at < 2*c.window:
		return int64(math.Ceil(float64(c.current) * float64(2*c.window-at) / float64(c.window)))
	}
	return 0
}

// until returns the smallest d for which used(now, d) <= goal.
func (c *counter) until(now, goal int64) int64 {
	if c.used(now, 0) <= goal {
		return 0
	}
	// Solve for the elapsed time, then correct the rounding of the division.
	elapsed := 2*c.window - int64(float64(goal)*float64(c.window)/float64(c.current))
	if goal >= c.current {
		elapsed = c.window - int64(float64(goal-c.current)*float64(c.window)/float64(c.prev))
	}
	d := max(1, c.start+elapsed-now)
	for d > 1 && c.used(now, d-1) <= goal {
		d--
	}
	for c.used(now, d) > goal {
		d++
	}
	return d
}

// at returns a copy of a window's counter as it stands at now.
func (c *Counter) at(now, window int64) counter {
	for i := range c.counters {
		if k := &c.counters[i]; k.window == window {
			if now < k.start {
				k.roll(now) // the clock went back
			}
			rolled := *k
			rolled.roll(now)
			return rolled
		}
	}
	return counter{window: window, start: now - mod(now, window)}
}

// put stores a window's counter.
func (c *Counter) put(k counter) {
	for i := range c.counters {
		if c.counters[i].window == k.window {
			c.counters[i] = k
			return
		}
	}
	c.counters = append(c.counters, k)
}

// Look implements State.
func (c *Counter) Look(now, cost int64, limits []driver.Limit, out []driver.Status) (refusals uint64) {
	for i := range limits {
		limit := &limits[i]
		s := driver.Status{Remaining: limit.Units}
		k := c.at(now, limit.Window)
		if used := k.used(now, 0); used > 0 {
			s.Remaining = max(0, limit.Units-used)
			s.Release = k.until(now, min(used, limit.Units)-1)
			s.Reset = k.until(now, 0)
			if used+cost > limit.Units {
				refusals |= 1 << i
				s.Retry = k.until(now, limit.Units-cost)
			}
		}
		out[i] = s
	}
	return refusals
}

// Charge implements State.
func (c *Counter) Charge(now, cost int64, limits []driver.Limit) {
	for i := range limits {
		k := c.at(now, limits[i].Window)
		k.current += cost
		c.put(k)
	}
}

// Settle implements State.
func (c *Counter) Settle(_, at, more int64, limits []driver.Limit) {
	for i := range limits {
		window := limits[i].Window
		start := at - mod(at, window)
		for j := range c.counters {
			k := &c.counters[j]
			switch {
			case k.window != window:
			case k.start == start:
				k.current = max(0, k.current+more)
			case k.start == start+window:
				k.prev = max(0, k.prev+more)
			}
		}
	}
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

// Expires implements State.
func (c *Counter) Expires() int64 {
	var t int64
	for i := range c.counters {
		t = max(t, c.counters[i].start+2*c.counters[i].window)
	}
	return t
}

// mod returns a modulo b, never negative.
func mod(a, b int64) int64 { return ((a % b) + b) % b }

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
