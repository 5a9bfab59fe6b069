package replay

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// mostRoutes bounds the number of route names, because paths can be unlimited. The rest are one route.
const mostRoutes = 100_000

const otherRoutes = "(other routes)"

// A Trace is requests in time order. It is immutable and safe for concurrent use.
type Trace struct {
	events   []event
	clients  []client
	routes   []string
	counts   Counts
	byClient func() grouping // computed on first use
}

// An event is one request: 32 bytes.
type event struct {
	at, cost      int64 // at is in microseconds since the epoch
	order         uint32
	client, route uint32
	class         uint8
}

type client struct {
	name string // as the key expression returned it
	key  string // short, for the limiter
	rule int
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

// A Builder collects requests. Its zero value is empty. It is not safe for concurrent use.
type Builder struct {
	trace   Trace
	clients map[string]uint32
	routes  map[string]uint32
	latest  int64
}

// Skip counts a request that a filter left out.
func (b *Builder) Skip() { b.trace.counts.Filtered++ }

// Throttled counts a request that was refused according to the log.
func (b *Builder) Throttled() { b.trace.counts.Throttled++ }

// Add adds a request at a time in microseconds since the Unix epoch.
func (b *Builder) Add(at int64, s Selection) {
	if s.Key == "" || s.Cost <= 0 || s.Rule < 0 {
		b.trace.counts.Unlimited++
		return
	}
	if b.clients == nil {
		b.clients, b.routes = make(map[string]uint32), make(map[string]uint32)
	}
	t := &b.trace
	number, known := b.clients[s.Key]
	if !known {
		number = uint32(len(t.clients))
		name := strings.Clone(s.Key) // without retaining the line around it
		b.clients[name] = number
		t.clients = append(t.clients, client{name: name, key: strconv.FormatUint(uint64(number), 36), rule: s.Rule})
	}
	if b.latest > at {
		t.counts.Late++
	}
	b.latest = max(b.latest, at)
	t.counts.Requests++
	t.events = append(t.events, event{at: at, cost: s.Cost, order: uint32(len(t.events)), client: number, route: b.route(s.Route), class: s.Class})
}

func (b *Builder) route(name string) uint32 {
	if number, known := b.routes[name]; known {
		return number
	}
	if len(b.routes) >= mostRoutes {
		if name == otherRoutes {
			b.routes[name] = uint32(len(b.trace.routes))
			b.trace.routes = append(b.trace.routes, name)
			return b.routes[name]
		}
		return b.route(otherRoutes)
	}
	name = strings.Clone(name)
	number := uint32(len(b.trace.routes))
	b.routes[name] = number
	b.trace.routes = append(b.trace.routes, name)
	return number
}

// Trace sorts and returns the added requests. The Builder is empty afterwards.
func (b *Builder) Trace() *Trace {
	t := b.trace
	*b = Builder{}
	slices.SortFunc(t.events, func(x, y event) int {
		return cmp.Or(cmp.Compare(x.at, y.at), cmp.Compare(x.order, y.order))
	})
	t.byClient = sync.OnceValue(t.group)
	return &t
}

// Counts returns the numbers of requests.
func (t *Trace) Counts() Counts { return t.counts }

// Clients returns the number of clients, that is, of distinct keys.
func (t *Trace) Clients() int { return len(t.clients) }

// Span returns the times of the first and the last request in UTC, or zero times if there are none.
func (t *Trace) Span() (first, last time.Time) {
	if len(t.events) == 0 {
		return first, last
	}
	return time.UnixMicro(t.events[0].at).UTC(), time.UnixMicro(t.events[len(t.events)-1].at).UTC()
}

// WholeSeconds reports whether every time is a whole second, as in most logs. Then the order within a second is unknown.
func (t *Trace) WholeSeconds() bool {
	return !slices.ContainsFunc(t.events, func(e event) bool { return e.at%1_000_000 != 0 })
}

// A grouping holds the events of each client, in time order.
type grouping struct {
	events []uint32 // numbers of events, client by client
	starts []uint32 // where each client's events begin, and the end
}

func (g grouping) of(client int) []uint32 { return g.events[g.starts[client]:g.starts[client+1]] }

func (t *Trace) group() grouping {
	g := grouping{make([]uint32, len(t.events)), make([]uint32, len(t.clients)+1)}
	for _, e := range t.events {
		g.starts[e.client+1]++
	}
	for i := range t.clients {
		g.starts[i+1] += g.starts[i]
	}
	next := slices.Clone(g.starts)
	for i, e := range t.events {
		g.events[next[e.client]] = uint32(i)
		next[e.client]++
	}
	return g
}
