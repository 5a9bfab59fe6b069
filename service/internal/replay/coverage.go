package replay

import (
	"context"
	"math"
	"sort"
	"time"
)

// Coverage is how much a log can know about windows: the stretches of time in which it has requests.
//
// A window of a length is known as often as it fits into the stretches that no silence of that length interrupts, each at
// least once. What a log saw n times is exceeded the next time with a chance of 1 in n+1, if times are alike.
//
// Some logs are samples, such as one minute of each hour. They are recognized by their requests lying in less than a
// tenth of the minutes in which as many clients would be expected at random. A sample says nothing of what lies around
// it, so there a window is known only where a stretch without a silence of a minute holds it wholly.
type Coverage struct {
	// Busy counts the minutes with a request, and Minutes all of them, except those in silences of more than a day.
	Busy, Minutes int
	// Sampled reports that the log looks like samples.
	Sampled bool

	stretches []stretch
	tick      int64 // the resolution of times
}

// A stretch is a time without a silence of more than a second, both ends included, in microseconds.
type stretch struct{ first, last int64 }

// Coverage returns the coverage of the trace. The error is that of the context or the trace.
func (t *Trace) Coverage(ctx context.Context) (*Coverage, error) {
	const second, minute, day = 1_000_000, 60_000_000, 24 * 3600 * 1_000_000
	c := &Coverage{tick: second}
	if t.fractions {
		c.tick = 0
	}
	latest := make([]int64, len(t.clients)) // the last minute of each client, counted from the first minute as 1
	visits, silent, origin, last := 0, int64(0), int64(0), int64(0)
	err := t.each(ctx, func(e *event) error {
		at := e.at / minute
		n := len(c.stretches)
		switch {
		case n == 0:
			origin = at - 1
			c.stretches = append(c.stretches, stretch{e.at, e.at})
		case e.at-c.stretches[n-1].last > second:
			if silence := e.at - c.stretches[n-1].last; silence > day {
				silent += silence / minute
			}
			c.stretches = append(c.stretches, stretch{e.at, e.at})
		default:
			c.stretches[n-1].last = e.at
		}
		if at-origin != last {
			last = at - origin
			c.Busy++
		}
		if latest[e.client] != last {
			latest[e.client] = last
			visits++
		}
		return nil
	})
	c.Minutes = int(last - silent)
	if c.Minutes > 0 {
		expected := float64(c.Minutes) * (1 - math.Exp(-float64(visits)/float64(c.Minutes)))
		c.Sampled = float64(c.Busy) < expected/10
	}
	return c, err
}

// Windows returns how often the log knows a window of a length.
func (c *Coverage) Windows(length time.Duration) int {
	return c.between(length, math.MinInt64, math.MaxInt64)
}

// Between returns how often the part of the log from one time until before another knows a window of a length.
func (c *Coverage) Between(length time.Duration, from, until time.Time) int {
	return c.between(length, from.UnixMicro(), until.UnixMicro())
}

func (c *Coverage) between(length time.Duration, from, until int64) int {
	gap, least := length.Microseconds(), int64(1)
	if c.Sampled {
		gap, least = min(gap, time.Minute.Microseconds()), 0
	}
	windows, open := int64(0), stretch{last: math.MinInt64}
	add := func() {
		if open.last != math.MinInt64 {
			windows += max(least, (open.last-open.first+c.tick)/length.Microseconds())
		}
	}
	start := sort.Search(len(c.stretches), func(i int) bool { return c.stretches[i].last >= from })
	for _, s := range c.stretches[start:] {
		if s = (stretch{max(s.first, from), min(s.last, until-1)}); s.first > s.last {
			break
		}
		if open.last == math.MinInt64 || s.first-open.last > gap {
			add()
			open = s
		}
		open.last = s.last
	}
	add()
	return int(windows)
}
