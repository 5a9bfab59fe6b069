package replay

import (
	"fmt"
	"time"
)

// Caveats returns, a sentence each, what the trace cannot show about limits over windows of the given
// lengths.
func (t *Trace) Caveats(windows ...time.Duration) []string {
	var all []string
	say := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	first, last := t.Span()
	span := last.Sub(first)
	if t.WholeSeconds() {
		say("Times are whole seconds: what happened within a second is not known, so a window of a few seconds is measured to within one.")
	}
	if busy, all := t.minutes(); all > 100 && busy < all/10 && len(t.events) > 10*busy {
		say("Only %d of the %d minutes of the log have any request, and those have %d each: the log looks like a sample, or is cut, and real traffic may be denser.", busy, all, len(t.events)/busy)
	}
	for _, w := range windows {
		if span < 20*w {
			say("The log is %s long: a window of %s fits into it %.1f times, so a busier one may well come.", span.Round(time.Second), windowName(w), span.Seconds()/w.Seconds())
		}
	}
	if n := len(t.clients); n < 10_000 && n > 1 {
		say("There are %d clients: one of them is %.2f%%, and a smaller share cannot be told from none.", n, 100/float64(n))
	}
	if t.counts.Throttled > 0 {
		say("%d requests were answered with 429: something limits already, so clients may want more than they show here.", t.counts.Throttled)
	}
	if t.counts.Late > 0 {
		say("%d requests stood after a later one: many servers write a request down when its answer ends, with the time at which it began or ended.", t.counts.Late)
	}
	say("Several people behind one address count as one client here, and one person with many addresses as many.")
	say("What clients would do when refused is not in a log without refusals; the retries that can be modelled are guesses.")
	say("Requests that never reached the log (kept back by a proxy, dropped under load, served from a cache) are missing.")
	return all
}

// minutes counts the minutes that have a request, and all from the first to the last.
func (t *Trace) minutes() (busy, all int) {
	const minute = 60_000_000
	last := int64(-1)
	for _, e := range t.events {
		if m := e.at / minute; m != last {
			busy, last = busy+1, m
		}
	}
	if len(t.events) > 0 {
		all = int(last-t.events[0].at/minute) + 1
	}
	return busy, all
}
