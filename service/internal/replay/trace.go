package replay

import (
	"context"
	"time"
)

// A Trace is requests in time order. It is immutable and safe for concurrent use.
type Trace struct {
	events    []event // by time
	clients   []client
	routes    []string
	counts    Counts
	fractions bool // some times are no whole seconds
}

// An event is one request.
type event struct {
	at, cost      int64 // at is in microseconds since the epoch
	client, route uint32
}

type client struct {
	name     string // as the key expression returned it
	key      string // short, for the limiter
	rule     int
	requests int64
}

// Counts are the numbers of requests of a log.
type Counts struct {
	// Requests counts those in the trace, which have a key and a cost.
	Requests int64
	// Filtered counts those that an expression left out.
	Filtered int64
	// Unlimited counts those without a key, a cost, or a rule.
	Unlimited int64
	// Late counts requests of the trace that came after a later one in the log.
	Late int64
	// Throttled counts those that the server had answered with 429.
	Throttled int64
}

// Counts returns the numbers of requests.
func (t *Trace) Counts() Counts { return t.counts }

// Clients returns the number of clients, that is, of distinct keys.
func (t *Trace) Clients() int { return len(t.clients) }

// Span returns the times of the first and the last request in UTC, or zero times if there are none.
func (t *Trace) Span() (first, last time.Time) {
	n := len(t.events)
	if n == 0 {
		return first, last
	}
	return time.UnixMicro(t.events[0].at).UTC(), time.UnixMicro(t.events[n-1].at).UTC()
}

// WholeSeconds reports whether every time is a whole second, as in most logs. Then the order within a second is unknown.
func (t *Trace) WholeSeconds() bool { return !t.fractions }

// steps is after how many events passes look at the context.
const steps = 1 << 14

// each calls visit for every event, in time order. The error is visit's or the context's.
func (t *Trace) each(ctx context.Context, visit func(*event) error) error {
	for i := range t.events {
		if i%steps == 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		if err := visit(&t.events[i]); err != nil {
			return err
		}
	}
	return nil
}
