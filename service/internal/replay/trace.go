package replay

import (
	"context"
	"errors"
	"math"
	"time"
)

// ErrMemory means that the names of a log's clients and routes take more memory than a [Builder] may use for them.
var ErrMemory = errors.New("the log needs more memory")

// A Trace is requests in time order. It is immutable and safe for concurrent use. Close removes its temporary file, if
// it has one.
type Trace struct {
	events    events
	clients   []client
	routes    []string
	weights   []weight // of the routes
	counts    Counts
	fractions bool  // some times are no whole seconds
	memory    int64 // of the Builder
	err       error
	progress  func(done int64)
}

type client struct {
	name     string // as the key expression returned it
	key      string // short, for the limiter
	rule     int
	requests int64
}

// A weight is the requests of a route, and the sizes and times of their responses.
type weight struct {
	requests, bytes int64
	seconds         float64
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

// WithProgress returns the same trace, whose methods call progress from time to time with the number of requests that
// they have read, out of Counts.Requests. [Trace.Run] has an option instead. A method that reads the trace several times
// begins again at 0.
func (t *Trace) WithProgress(progress func(done int64)) *Trace {
	with := *t
	with.progress = progress
	return &with
}

// Close removes the temporary file of the trace. The trace, and those that WithProgress returned, must not be used
// afterwards.
func (t *Trace) Close() { t.events.release() }

// Spilled returns how many bytes of requests are in a temporary file, because they take more memory than [Builder].Memory.
func (t *Trace) Spilled() int64 {
	if t.events.spilled == nil {
		return 0
	}
	return t.events.spilled.size
}

// Counts returns the numbers of requests.
func (t *Trace) Counts() Counts { return t.counts }

// Clients returns the number of clients, that is, of distinct keys.
func (t *Trace) Clients() int { return len(t.clients) }

// Span returns the times of the first and the last request in UTC, or zero times if there are none.
func (t *Trace) Span() (first, last time.Time) {
	if len(t.events.runs) == 0 {
		return first, last
	}
	least, most := int64(math.MaxInt64), int64(math.MinInt64)
	for _, r := range t.events.runs {
		least, most = min(least, r.blocks[0].at), max(most, r.last.at)
	}
	return time.UnixMicro(least).UTC(), time.UnixMicro(most).UTC()
}

// WholeSeconds reports whether every time is a whole second, as in most logs. Then the order within a second is unknown.
func (t *Trace) WholeSeconds() bool { return !t.fractions }

// steps is after how many events passes look at the context and call progress.
const steps = 1 << 14

// each calls visit for every event, in time order. The error is visit's, the context's, or that of the temporary file.
func (t *Trace) each(ctx context.Context, visit func(*event) error) error {
	if t.err != nil {
		return t.err
	}
	from, done := t.events.cursor(), int64(0)
	for e, ok := from.next(); ok; e, ok = from.next() {
		if done%steps == 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
			if t.progress != nil {
				t.progress(done)
			}
		}
		done++
		if err := visit(&e); err != nil {
			return err
		}
	}
	if t.progress != nil && from.err == nil {
		t.progress(done)
	}
	return from.err
}
