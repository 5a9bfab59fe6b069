package replay

import (
	"context"
	"fmt"
	"time"
)

// Caveats returns what the trace cannot show about limits over windows of the given lengths, one sentence each. The
// error is that of the context or the trace.
func (t *Trace) Caveats(ctx context.Context, windows ...time.Duration) ([]string, error) {
	var all []string
	say := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	first, last := t.Span()
	span := last.Sub(first)
	if t.WholeSeconds() {
		say("Times are whole seconds. The order within a second is unknown, so a window of a few seconds is measured to within one second.")
	}
	busy, minutes, err := t.minutes(ctx)
	if err != nil {
		return nil, err
	}
	if requests := t.counts.Requests; minutes > 100 && busy < minutes/10 && requests > 10*busy {
		say("Only %d of the %d minutes of the log have requests, %d each on average. The log looks sampled or incomplete, and real traffic may be denser.", busy, minutes, requests/busy)
	}
	for _, w := range windows {
		if span < 20*w {
			say("The log is %s long. A window of %s fits into it %.1f times, so busier windows are likely to exist.", span.Round(time.Second), windowName(w), span.Seconds()/w.Seconds())
		}
	}
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
	say("A log without refusals does not show how clients react to them; the modeled retries are guesses.")
	say("Requests that never reached the log (held back by a proxy, dropped under load, served from a cache) are missing.")
	return all, nil
}

// minutes counts the minutes with a request, and all minutes from the first to the last.
func (t *Trace) minutes(ctx context.Context) (busy, all int64, err error) {
	const minute = 60_000_000
	first, last := int64(0), int64(0)
	err = t.each(ctx, func(e *event) error {
		m := e.at / minute
		if busy == 0 {
			first = m
		}
		if busy == 0 || m != last {
			busy, last = busy+1, m
		}
		return nil
	})
	if busy > 0 {
		all = last - first + 1
	}
	return busy, all, err
}
