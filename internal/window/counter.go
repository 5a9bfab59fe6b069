package window

import (
	"math"
	"slices"

	"example.com/sash/driver"
)

// A Counter counts the units of windows that start at a multiple of their length since the epoch, or at a boundary of the calendar.
//
// A Counter is the fixed window, which admits up to twice its units around a boundary. If it Slides, it is the sliding window counter: the
// count of this window plus that of the previous one, weighted by how much of the previous one the sliding window still overlaps.
//
//	used = current + ceil(previous * (window - elapsed) / window)
//
// This assumes that the previous window's calls were spread evenly. A caller that sends them all at the window's end gets almost twice its
// units through one sliding window. Cloudflare described the algorithm in 2017.
type Counter struct {
	Slides   bool
	counters []counter
}

type counter struct {
	limit driver.Limit // whose window it counts; its units do not matter
	count
}

type count struct {
	start, end    int64 // of the current window
	current, prev int64 // prev is 0 unless it slides
}

// mostWindows is the most windows that a subject counts, as in redisstore/script/windows.lua.
const mostWindows = 255

// mostCount keeps sums of counts from wrapping, because refusals may be charged without end.
const mostCount = math.MaxInt64 / 4

// used returns the count d microseconds after now, if no call comes.
func (c *Counter) used(k *count, now, d int64) int64 {
	at, window := now+d, k.end-k.start
	switch {
	case at < k.end && k.prev == 0:
		return k.current
	case at < k.end:
		return k.current + int64(math.Ceil(float64(k.prev)*float64(k.end-at)/float64(window)))
	case c.Slides && at < k.end+window:
		return int64(math.Ceil(float64(k.current) * float64(k.end+window-at) / float64(window)))
	}
	return 0
}

// until returns the smallest d for which used(k, now, d) <= goal.
func (c *Counter) until(k *count, now, goal int64) int64 {
	if !c.Slides && k.current > goal {
		return k.end - now
	}
	return c.solve(k, now, goal)
}

// solve is until without the case of a fixed window in use, so that until is inlined.
func (c *Counter) solve(k *count, now, goal int64) int64 {
	if c.used(k, now, 0) <= goal {
		return 0
	}
	// Solve for the instant, then correct the rounding of the division.
	window := float64(k.end - k.start)
	at := 2*k.end - k.start - int64(float64(goal)*window/float64(k.current))
	if goal >= k.current {
		at = k.end - int64(float64(goal-k.current)*window/float64(k.prev))
	}
	d := max(1, at-now)
	for d > 1 && c.used(k, now, d-1) <= goal {
		d--
	}
	for c.used(k, now, d) > goal {
		d++
	}
	return d
}

func period(l *driver.Limit, now int64) (start, end int64) {
	if l.Period != 0 {
		return l.Bounds(now)
	}
	start = now - mod(now, l.Window)
	return start, start + l.Window
}

func mod(a, b int64) int64 { return ((a % b) + b) % b }

func (c *Counter) of(limit *driver.Limit) *counter {
	for i := range c.counters {
		k := &c.counters[i]
		if k.limit.Window == limit.Window && k.limit.Period == limit.Period && (limit.Period == 0 || k.limit.SameWindow(limit)) {
			return k
		}
	}
	return nil
}

// at returns the counts of a limit's window as of now, and the counter that stores them, or nil. If the stored window is later than now,
// the clock went back: its counts become those of the window of now.
func (c *Counter) at(now int64, limit *driver.Limit) (rolled count, k *counter) {
	start, end := period(limit, now)
	if k = c.of(limit); k == nil {
		return count{start: start, end: end}, nil
	}
	if now < k.start {
		k.start, k.end = start, end
	}
	rolled = k.count
	if now >= k.end {
		rolled.start, rolled.end, rolled.current, rolled.prev = start, end, 0, 0
		if c.Slides && start == k.end {
			rolled.prev = k.current
		}
	}
	return rolled, k
}

// Look implements State.
func (c *Counter) Look(now, cost int64, limits []driver.Limit, out []driver.Status) (refusals uint64) {
	for i := range limits {
		limit := &limits[i]
		s := driver.Status{Remaining: limit.Units}
		k, _ := c.at(now, limit)
		used := c.used(&k, now, 0)
		if used+cost > limit.Units {
			refusals |= 1 << i
		}
		if used > 0 {
			s.Remaining = max(0, limit.Units-used)
			s.Release = c.until(&k, now, min(used, limit.Units)-1)
			s.Reset = c.until(&k, now, 0)
			if refusals&(1<<i) != 0 {
				s.Retry = c.until(&k, now, limit.Units-cost)
			}
		}
		out[i] = s
	}
	return refusals
}

// Charge implements State.
func (c *Counter) Charge(now, cost int64, limits []driver.Limit) {
	for i := range limits {
		k, stored := c.at(now, &limits[i])
		k.current = min(k.current+cost, mostCount)
		if stored != nil {
			stored.count = k
		} else {
			if len(c.counters) >= mostWindows { // drop the windows that have ended, or else the first
				c.counters = slices.DeleteFunc(c.counters, func(k counter) bool { return k.end+k.end-k.start <= now })
				c.counters = slices.Delete(c.counters, 0, max(0, len(c.counters)-mostWindows+1))
			}
			c.counters = append(c.counters, counter{limits[i], k})
		}
	}
}

// Settle implements State.
func (c *Counter) Settle(_, at, more int64, limits []driver.Limit) {
	for i := range limits {
		switch k := c.of(&limits[i]); {
		case k == nil || at >= k.end:
		case at >= k.start:
			k.current = max(0, k.current+more)
		case c.Slides && at >= 2*k.start-k.end:
			k.prev = max(0, k.prev+more)
		}
	}
}

// Reward implements State. The charges of the previous window are the oldest.
func (c *Counter) Reward(now, units int64, limits []driver.Limit) (given int64) {
	for i := range limits {
		k, stored := c.at(now, &limits[i])
		before := min(units, k.prev)
		since := min(units-before, k.current)
		if before+since > 0 {
			k.prev, k.current = k.prev-before, k.current-since
			stored.count = k
			given = max(given, before+since)
		}
	}
	return given
}

// Expires implements State.
func (c *Counter) Expires() int64 {
	var t int64
	for _, k := range c.counters {
		if c.Slides {
			k.end += k.end - k.start
		}
		t = max(t, k.end)
	}
	return t
}

// Bytes implements State.
func (c *Counter) Bytes() int { return 64 * max(0, cap(c.counters)-2) }
