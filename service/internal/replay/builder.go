package replay

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// mostRoutes bounds the number of route names, because paths can be unlimited. The rest are one route.
const mostRoutes = 100_000

const otherRoutes = "(other routes)"

// A Builder collects requests, 32 bytes each. Its zero value is empty. It is not safe for concurrent use.
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
	t.clients[number].requests++
	if b.latest > at && t.counts.Requests > 0 {
		t.counts.Late++
	} else {
		b.latest = at
	}
	t.fractions = t.fractions || at%1_000_000 != 0
	t.counts.Requests++
	t.events = append(t.events, event{at: at, cost: s.Cost, client: number, route: b.route(s.Route)})
}

func (b *Builder) route(name string) uint32 {
	if number, known := b.routes[name]; known {
		return number
	}
	if len(b.routes) >= mostRoutes {
		if name == otherRoutes {
			return b.newRoute(name)
		}
		return b.route(otherRoutes)
	}
	return b.newRoute(strings.Clone(name))
}

func (b *Builder) newRoute(name string) uint32 {
	number := uint32(len(b.trace.routes))
	b.routes[name] = number
	b.trace.routes = append(b.trace.routes, name)
	return number
}

// Trace returns the added requests in time order, and of one time in the order in which they were added. The Builder is
// empty afterwards.
func (b *Builder) Trace() *Trace {
	t := b.trace
	*b = Builder{}
	if byTime := func(a, b event) int { return cmp.Compare(a.at, b.at) }; !slices.IsSortedFunc(t.events, byTime) {
		slices.SortStableFunc(t.events, byTime)
	}
	return &t
}
