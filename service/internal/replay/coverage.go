package replay

import (
	"fmt"
	"math"
	"slices"
	"time"

	"example.com/sash"
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

	events []event
	tick   int64 // the resolution of times
}

// Coverage returns the coverage of the trace.
func (t *Trace) Coverage() *Coverage {
	const minute, day = 60_000_000, 24 * 60 // microseconds; minutes
	c := &Coverage{events: t.events, tick: 1_000_000}
	if t.fractions {
		c.tick = 0
	}
	latest := make([]int64, len(t.clients)) // the last minute of each client
	visits, last := 0, int64(-day)
	for _, e := range t.events {
		at := e.at/minute + 1
		if at != last {
			c.Busy, c.Minutes = c.Busy+1, c.Minutes+1
			if at-last <= day {
				c.Minutes += int(at - last - 1)
			}
			last = at
		}
		if latest[e.client] != at {
			latest[e.client] = at
			visits++
		}
	}
	expected := float64(c.Minutes) * (1 - math.Exp(-float64(visits)/float64(max(1, c.Minutes))))
	c.Sampled = float64(c.Busy) < expected/10
	return c
}

// Windows returns how often the log knows a window of a length.
func (c *Coverage) Windows(length time.Duration) int {
	gap, least := length.Microseconds(), int64(1)
	if c.Sampled {
		gap, least = min(gap, time.Minute.Microseconds()), 0
	}
	windows, first := int64(0), 0
	for i, e := range c.events {
		if i == len(c.events)-1 || c.events[i+1].at-e.at > max(gap, time.Second.Microseconds()) {
			windows += max(least, (e.at-c.events[first].at+c.tick)/length.Microseconds())
			first = i + 1
		}
	}
	return int(windows)
}

// Caveats returns what the trace cannot show about candidates, one sentence each.
func (t *Trace) Caveats(candidates ...Candidate) (all []string) {
	c := t.Coverage()
	say := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	first, last := t.Span()
	span := last.Sub(first)
	if !t.fractions {
		say("Times are whole seconds. The order within a second is unknown, so a window of a few seconds is measured to within one second.")
	}
	if c.Sampled {
		say("Only %d of the %d minutes of the log have requests, %d each on average. The log looks sampled or incomplete, and real traffic may be denser.", c.Busy, c.Minutes, t.counts.Requests/int64(c.Busy))
	}
	var said []time.Duration
	limits(candidates, func(_ int, l sash.Limit) {
		if w := l.Window; span < 20*w && !slices.Contains(said, w) {
			said = append(said, w)
			say("The log is %s long. A window of %s fits into it %.1f times, so busier windows are likely to exist.", span.Round(time.Second), WindowName(l), span.Seconds()/w.Seconds())
		}
	})
	if n := len(t.clients); n < 10_000 && n > 1 {
		say("There are %d clients. One of them is %.2f%%, and a smaller share cannot be distinguished from none.", n, 100/float64(n))
	}
	if t.counts.Throttled > 0 {
		say("%d requests were answered with 429. Something limits them already, so clients may want more than the log shows.", t.counts.Throttled)
	}
	if t.counts.Late > 0 {
		say("%d requests came after a later one in the log. Many servers log a request when its response ends, with the time at which it began or ended.", t.counts.Late)
	}
	say("Several people behind one address count as one client, and one person with many addresses as many.")
	say("A log without refusals does not show how clients react to them.")
	say("Requests that never reached the log (held back by a proxy, dropped under load, served from a cache) are missing.")
	return all
}
