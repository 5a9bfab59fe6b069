// Package replay runs logged traffic through candidate limits on a virtual clock, with the code that decides in
// production: a [sash.Limiter] over memstore. It reports what each candidate would have refused and to which clients,
// what it would have admitted, and which limits a log suggests.
//
// A [Builder] takes requests in any order and returns a [Trace], which is in time order, in memory. Candidates run over
// one trace in parallel: see [Trace.Run].
//
// [Trace.Demands] measures clients without any limit: the most units that each client requested within any window. A
// sliding limit of n units refuses a client at some point exactly if that is more than n, so one pass yields the whole
// curve from limits to affected clients.
package replay

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
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
	// Late counts requests of the trace that came after a later one in their file.
	Late int64
	// Throttled counts those that the server had answered with 429.
	Throttled int64
}

// A Builder collects requests. Its zero value is empty. It is not safe for concurrent use.
type Builder struct {
	trace           Trace
	clients, routes map[string]uint32
	latest          int64
}

// NextFile begins another file. Its times may be earlier than those of the one before.
func (b *Builder) NextFile() { b.latest = 0 }

// Skip counts a request that a filter left out.
func (b *Builder) Skip() { b.trace.counts.Filtered++ }

// Throttled counts a request that was refused according to the log.
func (b *Builder) Throttled() { b.trace.counts.Throttled++ }

// Add adds a request at a time in microseconds since the Unix epoch.
func (b *Builder) Add(at int64, s Selection) {
	t := &b.trace
	if s.Key == "" || s.Cost <= 0 || s.Rule < 0 {
		t.counts.Unlimited++
		return
	}
	if b.clients == nil {
		b.clients, b.routes = make(map[string]uint32), make(map[string]uint32)
	}
	number := add(b.clients, &t.clients, s.Key, func(name string) client {
		return client{name: name, key: strconv.Itoa(len(t.clients)), rule: s.Rule}
	})
	t.clients[number].requests++
	if b.latest > at {
		t.counts.Late++
	} else {
		b.latest = at
	}
	t.fractions = t.fractions || at%1_000_000 != 0
	t.counts.Requests++
	where := add(b.routes, &t.routes, s.Route, func(name string) string { return name })
	t.events = append(t.events, event{at: at, cost: s.Cost, client: number, route: where})
}

// add returns the number of a name, and appends what a new one stands for.
func add[T any](numbers map[string]uint32, all *[]T, name string, made func(string) T) uint32 {
	number, known := numbers[name]
	if !known {
		name = strings.Clone(name) // without retaining the line around it
		number = uint32(len(*all))
		numbers[name], *all = number, append(*all, made(name))
	}
	return number
}

// Trace returns the added requests in time order, and of one time in the order in which they were added. The Builder is
// empty afterwards.
func (b *Builder) Trace() *Trace {
	t := b.trace
	*b = Builder{}
	slices.SortStableFunc(t.events, func(a, b event) int { return cmp.Compare(a.at, b.at) })
	return &t
}

// Counts returns the numbers of requests.
func (t *Trace) Counts() Counts { return t.counts }

// Clients returns the number of clients, that is, of distinct keys.
func (t *Trace) Clients() int { return len(t.clients) }

// Span returns the times of the first and the last request in UTC, or zero times if there are none.
func (t *Trace) Span() (first, last time.Time) {
	if n := len(t.events); n > 0 {
		first, last = time.UnixMicro(t.events[0].at).UTC(), time.UnixMicro(t.events[n-1].at).UTC()
	}
	return first, last
}

// between returns the trace of the requests from one time until before another.
func (t *Trace) between(from, until time.Time) *Trace {
	var b Builder
	for _, e := range t.events {
		if e.at >= from.UnixMicro() && e.at < until.UnixMicro() {
			c := &t.clients[e.client]
			b.Add(e.at, Selection{Key: c.name, Cost: e.cost, Route: t.routes[e.route], Rule: c.rule})
		}
	}
	return b.Trace()
}

// Busiest returns at most n clients with the most requests.
func (t *Trace) Busiest(n int) (names []string) {
	all := slices.Clone(t.clients)
	slices.SortStableFunc(all, func(a, b client) int { return cmp.Compare(b.requests, a.requests) })
	for _, c := range all[:min(n, len(all))] {
		names = append(names, c.name)
	}
	return names
}

// A Heat is the units that clients requested over time.
type Heat struct {
	Clients []string
	Start   time.Time
	Step    time.Duration
	Units   [][]int64 // by client and step
}

// Heat sums the units of clients in the given number of equal steps of the trace's time.
func (t *Trace) Heat(clients []string, steps int) Heat {
	first, last := t.Span()
	h := Heat{Clients: clients, Start: first, Units: make([][]int64, len(clients))}
	h.Step = (last.Sub(first)/time.Duration(steps) + time.Microsecond).Truncate(time.Microsecond)
	rows := make(map[string][]int64)
	for i, name := range clients {
		h.Units[i] = make([]int64, steps)
		rows[name] = h.Units[i]
	}
	for _, e := range t.events {
		if row, ok := rows[t.clients[e.client].name]; ok {
			row[(e.at-first.UnixMicro())/h.Step.Microseconds()] += e.cost
		}
	}
	return h
}
