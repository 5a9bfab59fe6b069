// Package replay runs logged traffic through candidate limits on a virtual clock. A [sash.Limiter] over memstore decides,
// with the code used in production. The package reports which requests and clients each candidate would have refused, what
// it would have admitted, and which limits a log suggests.
//
// A [Builder] takes requests in any order and returns a [Trace]. [Trace.Run] runs candidates over a trace in parallel.
//
// [Trace.Demands] measures clients without any limit: the most units that each client requested within any window. A
// sliding limit refuses a client at some point exactly if this peak exceeds its units. So one pass yields the whole curve
// from limits to affected clients.
package replay

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unique"

	"example.com/sash"
)

// A Trace holds requests in time order. It is immutable and safe for concurrent use.
type Trace struct {
	events    []event // by time
	clients   []client
	routes    []string
	counts    Counts
	fractions bool // some times of the log have fractions of a second
}

type event struct {
	at, cost      int64 // at is in microseconds since the epoch
	client, route uint32
}

type client struct {
	name     string // the result of the key expression
	key      string // short, for the limiter
	rule     int
	requests int64

	route    uint32 // the client's main route, if more than half of its requests are for it
	votes    int64  // for it
	statuses []statusCount
	agent    unique.Handle[string] // of its first request
}

// Counts are the numbers of requests in a log.
type Counts struct {
	// Requests counts the requests in the trace. They have a key and a cost.
	Requests int64
	// Filtered counts the requests that an expression excluded.
	Filtered int64
	// Unlimited counts the requests without a key, a cost, or a rule.
	Unlimited int64
	// Late counts the requests in the trace that are after a later request in their file.
	Late int64
	// Throttled counts the requests that the server had answered with 429.
	Throttled int64
}

// A Builder collects requests. Its zero value is empty. It is not safe for concurrent use.
type Builder struct {
	// Counts has the numbers of requests. The caller counts the requests that it does not add.
	Counts Counts

	trace           Trace
	clients, routes map[string]uint32
}

// Add adds a request at a time in microseconds since the Unix epoch.
func (b *Builder) Add(at int64, s Selection) {
	t := &b.trace
	if s.Key == "" || s.Cost <= 0 || s.Rule < 0 {
		b.Counts.Unlimited++
		return
	}
	if b.clients == nil {
		b.clients, b.routes = make(map[string]uint32), make(map[string]uint32)
	}
	number := add(b.clients, &t.clients, s.Key, func(name string) client {
		return client{name: name, key: strconv.Itoa(len(t.clients)), rule: s.Rule, agent: unique.Make(s.Agent)}
	})
	t.fractions = t.fractions || at%1_000_000 != 0 && !s.Seconds
	b.Counts.Requests++
	where := add(b.routes, &t.routes, s.Route, func(name string) string { return name })
	t.events = append(t.events, event{at: at, cost: s.Cost, client: number, route: where})
	t.clients[number].saw(where, s.Status)
}

func (c *client) saw(route uint32, status int64) {
	c.requests++
	if c.votes == 0 {
		c.route = route
	}
	if c.votes++; c.route != route {
		c.votes -= 2
	}
	i := slices.IndexFunc(c.statuses, func(s statusCount) bool { return s.code == status })
	if i < 0 {
		i, c.statuses = len(c.statuses), append(c.statuses, statusCount{code: status})
	}
	c.statuses[i].n++
}

// add returns the number of a name. For a new name it appends the result of made.
func add[T any](numbers map[string]uint32, all *[]T, name string, made func(string) T) uint32 {
	number, known := numbers[name]
	if !known {
		name = strings.Clone(name) // a copy, so that the line is not kept in memory
		number = uint32(len(*all))
		numbers[name], *all = number, append(*all, made(name))
	}
	return number
}

// Trace returns the added requests in time order, and empties the Builder. Requests at the same time keep their order.
func (b *Builder) Trace() *Trace {
	t := b.trace
	t.counts, *b = b.Counts, Builder{}
	slices.SortStableFunc(t.events, func(a, b event) int { return cmp.Compare(a.at, b.at) })
	return &t
}

// Counts returns the numbers of requests.
func (t *Trace) Counts() Counts { return t.counts }

// Clients returns the number of clients, which are distinct keys.
func (t *Trace) Clients() int { return len(t.clients) }

// Span returns the times of the first and the last request in UTC, or zero times if there are none.
func (t *Trace) Span() (first, last time.Time) {
	if n := len(t.events); n > 0 {
		first, last = time.UnixMicro(t.events[0].at).UTC(), time.UnixMicro(t.events[n-1].at).UTC()
	}
	return first, last
}

// Twins returns the share of the first requests that occur an even number of times, with the same time, client,
// route and cost. It is near 1 if every line was written twice.
func (t *Trace) Twins() float64 {
	some, twins := t.events[:min(len(t.events), 100_000)], int64(0)
	times := make(map[event]int64)
	for _, e := range some {
		times[e]++
	}
	for _, n := range times {
		twins += n * (1 - n%2)
	}
	return share(twins, int64(len(some)))
}

func (t *Trace) subset(keep func(e *event) bool) *Trace {
	sub := &Trace{routes: t.routes, fractions: t.fractions}
	numbers := make([]uint32, len(t.clients)) // counted from 1
	for i := range t.events {
		e := t.events[i]
		if !keep(&e) {
			continue
		}
		if numbers[e.client] == 0 {
			sub.clients = append(sub.clients, t.clients[e.client])
			numbers[e.client] = uint32(len(sub.clients))
		}
		e.client = numbers[e.client] - 1
		sub.events = append(sub.events, e)
	}
	sub.counts.Requests = int64(len(sub.events))
	return sub
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

// A Course counts requests over time, in steps that begin at round times of UTC.
type Course struct {
	Start  time.Time     `json:"start"`
	Step   time.Duration `json:"step"`
	Counts []int64       `json:"counts"`
}

// Course counts the requests for whose index the function count returns true. It takes the shortest round step
// that divides the trace into at most 200 steps. A very long trace has more steps, of one day each.
func (t *Trace) Course(count func(i int) bool) Course {
	first, last := t.Span()
	c := Course{}
	for _, c.Step = range []time.Duration{1, 5, 15, 60, 5 * 60, 15 * 60, 3600, 6 * 3600, 24 * 3600} {
		if c.Step *= time.Second; last.Sub(first) < 200*c.Step {
			break
		}
	}
	c.Start = first.Truncate(c.Step)
	c.Counts = make([]int64, last.Sub(c.Start)/c.Step+1)
	for i := range t.events {
		if count(i) {
			c.Counts[(t.events[i].at-c.Start.UnixMicro())/c.Step.Microseconds()]++
		}
	}
	return c
}

// A Demand is what clients requested within a window when no limit applied.
type Demand struct {
	// Window is written as in limits: 1m, or day@Europe/Paris for a calendar day.
	Window string `json:"window"`
	// P50 is the peak that half of the clients stay within, and the other percentiles accordingly.
	P50  int64 `json:"p50"`
	P90  int64 `json:"p90"`
	P99  int64 `json:"p99"`
	P999 int64 `json:"p99_9"`
	Most int64 `json:"most"`
	// Curve has the limits at which the number of affected clients changes, from 1 to the smallest that affects no client.
	Curve []Point `json:"curve"`
	// Peaks has the most units that each client requested in any such window, in ascending order.
	Peaks []int64 `json:"-"`

	byClient []int64
}

// A Point of a curve is a limit and the number of clients that it affects.
type Point struct {
	Units    int64   `json:"units"`
	Affected int     `json:"clients_affected"`
	Share    float64 `json:"share"`
}

// limits calls visit for each limit of each candidate's rules, with the index of the rule.
func limits(candidates []Candidate, visit func(rule int, l sash.Limit)) {
	for _, c := range candidates {
		for i, rule := range c.rules() {
			for _, l := range rule.Limits {
				if !rule.Refuses {
					visit(i, l)
				}
			}
		}
	}
}

// Demands returns the demand in each window of the candidates: sliding windows first, the shortest first, and
// then calendar periods. If candidates have rules, a demand covers the clients of the rules with that window. A
// window without clients is omitted. The limits must be valid.
func (t *Trace) Demands(candidates []Candidate) (all []*Demand) {
	var windows []sash.Limit              // one limit for each
	held := make(map[string]map[int]bool) // the rules by window
	limits(candidates, func(rule int, l sash.Limit) {
		name := WindowName(l)
		if held[name] == nil {
			held[name], windows = make(map[int]bool), append(windows, l)
		}
		held[name][rule] = true
	})
	slices.SortStableFunc(windows, func(a, b sash.Limit) int {
		return cmp.Or(cmp.Compare(min(1, a.Period), min(1, b.Period)), cmp.Compare(a.Window, b.Window))
	})
	for _, l := range windows {
		d := t.Demand(l)
		var peaks []int64
		for c, peak := range d.byClient {
			if held[d.Window][t.clients[c].rule] {
				peaks = append(peaks, peak)
			}
		}
		if len(peaks) > 0 {
			all = append(all, newDemand(d.Window, peaks))
		}
	}
	return all
}

// Demand measures each client's peak in the window of a limit. The limit must be valid; its units are ignored.
func (t *Trace) Demand(l sash.Limit) *Demand {
	first := ending(l.Window)
	if l.Period != 0 {
		policy, err := sash.NewPolicy(nil, sash.Limit{Units: 1, Period: l.Period, Zone: l.Zone})
		if err != nil {
			panic(err)
		}
		first = func(at int64) int64 { from, _ := policy.Limits[0].Bounds(at); return from }
	}
	return newDemand(WindowName(l), t.peaks(first, func(_ int, e *event) int64 { return e.cost }))
}

func (t *Trace) peaks(first func(at int64) int64, units func(i int, e *event) int64) []int64 {
	used, peaks := make([]usage, len(t.clients)), make([]int64, len(t.clients))
	t.slide(first, func(i int, e *event, sign int64) { used[e.client].add(sign * units(i, e)) })
	for c, u := range used {
		peaks[c] = u.most
	}
	return peaks
}

type usage struct{ now, most int64 }

func (u *usage) add(n int64) {
	u.now += n
	u.most = max(u.most, u.now)
}

// slide moves a window over the trace. For each event that enters the window, it first calls count with -1 for each
// event that has left, and then with 1. The function first returns the start of the window that ends at an instant.
func (t *Trace) slide(first func(at int64) int64, count func(i int, e *event, sign int64)) {
	oldest := 0
	for i := range t.events {
		e := &t.events[i]
		for from := first(e.at); t.events[oldest].at < from; oldest++ { // never e itself
			count(oldest, &t.events[oldest], -1)
		}
		count(i, e, 1)
	}
}

// ending returns a function that returns the start of the sliding window that ends at an instant.
func ending(length time.Duration) func(at int64) int64 {
	return func(at int64) int64 { return at - length.Microseconds() + 1 }
}

func newDemand(window string, byClient []int64) *Demand {
	d := &Demand{Window: window, byClient: byClient, Peaks: slices.Sorted(slices.Values(byClient)), Curve: []Point{}}
	n := len(d.Peaks)
	if n == 0 {
		return d
	}
	quantile := func(q float64) int64 { return d.Peaks[int(math.Ceil(q*float64(n)))-1] }
	d.P50, d.P90, d.P99, d.P999, d.Most = quantile(0.5), quantile(0.9), quantile(0.99), quantile(0.999), quantile(1)
	for _, units := range slices.Compact(slices.Concat([]int64{1}, d.Peaks)) {
		affected := d.Affected(units)
		d.Curve = append(d.Curve, Point{units, affected, share(int64(affected), int64(n))})
	}
	return d
}

// Affected returns how many clients a sliding limit would refuse, if no request costs more than its units.
func (d *Demand) Affected(units int64) int {
	at, _ := slices.BinarySearch(d.Peaks, units+1)
	return len(d.Peaks) - at
}

// least returns the smallest limit, at least 1, that affects at most the given number of clients. The peaks are sorted.
func least(peaks []int64, clients int) int64 {
	if clients >= len(peaks) {
		return 1
	}
	return max(1, peaks[len(peaks)-1-clients])
}
