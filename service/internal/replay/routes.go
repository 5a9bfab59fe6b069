package replay

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Which routes may have limits of their own: those with enough requests and clients to know them, the busiest first.
const (
	leastRouteShare   = 0.005 // of all requests
	leastRouteClients = 20
	mostCandidates    = 50
)

// RouteFactor is by how much a route must differ from all routes together to have limits of its own.
const RouteFactor = 3

// A Reason is why a route has limits of its own.
type Reason uint8

// Reasons, the weightiest first.
const (
	// NoReason means that the route is like the others.
	NoReason Reason = iota
	// Drives means that the general limits are so high because of this route: without it, one of them would be at most a
	// third.
	Drives
	// Writes means that the method changes something, and that clients ask for it at most a third as often as for
	// anything.
	Writes
	// Slow and Large mean that responses take at least three times as long, or have three times as many bytes, as those
	// of all routes, whichever is more, and that clients ask for it at most a third as often as for anything.
	Slow
	Large
)

var reasonNames = []string{"none", "drives", "writes", "slow", "large"}

// String returns the name, such as "slow".
func (r Reason) String() string {
	if int(r) < len(reasonNames) {
		return reasonNames[r]
	}
	return fmt.Sprintf("Reason(%d)", uint8(r))
}

// A Route is the requests of one method to paths of one form, in which {…} stands for any text.
type Route struct {
	Method, Path string
	Requests     int64
	Clients      int
	Reason       Reason
	// Factor is by how much the route differs: how many times as high the general limit is with it as without it, or how
	// many times as slow or large it is as all routes, or, for Writes, how many times as often clients ask for anything.
	Factor float64

	number uint32
	own    [2]int64 // the least limits that refuse no client whom the general pair spares
}

// RoutesThatDiffer returns at most the given number of routes whose requests should have limits of their own beside a
// general pair: those that drive it, and those that are heavy or change something, of which clients need few. The trace
// must have routes as templates: see [Expressions]. The error is that of the context or the trace.
func (t *Trace) RoutesThatDiffer(ctx context.Context, s *Suggestion, most int) ([]Route, error) {
	all := t.candidateRoutes()
	byRoute := make(map[uint32]int, len(all))
	for i, r := range all {
		byRoute[r.number] = i
	}
	subjects := newSubjects(len(t.clients))
	demands, err := t.peaks(ctx, 0, func(e *event) int {
		if i, ok := byRoute[e.route]; ok {
			return subjects.number(i, e.client)
		}
		return -1
	}, s.Burst.Window, s.Sustained.Window)
	if err != nil {
		return nil, err
	}
	for n, who := range subjects.all {
		r := &all[who.group]
		r.Clients++
		for w := range r.own {
			if !s.affects(who.client) {
				r.own[w] = max(r.own[w], demands[w].byClient[n])
			}
		}
	}
	var differ []Route
	mean := t.mean()
	for _, r := range all {
		if r.Clients < leastRouteClients {
			continue
		}
		without := s.general()
		// A route can drive a limit only if its own demand is most of it.
		if r.own[0] > without[0]/2 || r.own[1] > without[1]/2 {
			if without, err = t.without(ctx, s, r.number); err != nil {
				return nil, err
			}
		}
		if r.judge(s.general(), without, t.weights[r.number], mean) {
			differ = append(differ, r)
		}
	}
	slices.SortStableFunc(differ, func(a, b Route) int {
		return cmp.Or(cmp.Compare(a.Reason, b.Reason), cmp.Compare(b.Requests, a.Requests))
	})
	return slices.Clip(differ[:min(most, len(differ))]), nil
}

// candidateRoutes returns the busiest routes that have a method and a path which a configuration can name.
func (t *Trace) candidateRoutes() (all []Route) {
	for i, name := range t.routes {
		method, path, _ := strings.Cut(name, " ")
		w := t.weights[i]
		if float64(w.requests) >= leastRouteShare*float64(t.counts.Requests) && strings.HasPrefix(path, "/") && !strings.Contains(path, "*") && utf8.ValidString(name) {
			all = append(all, Route{Method: method, Path: path, Requests: w.requests, number: uint32(i)})
		}
	}
	slices.SortStableFunc(all, func(a, b Route) int { return cmp.Compare(b.Requests, a.Requests) })
	return all[:min(mostCandidates, len(all))]
}

// judge sets the reason, and reports whether there is one.
func (r *Route) judge(general, without [2]int64, w, mean weight) bool {
	fewer := float64(general[1]) / float64(max(1, r.own[1]))
	slower, larger := ratio(w.seconds, w.requests, mean.seconds, mean.requests), ratio(float64(w.bytes), w.requests, float64(mean.bytes), mean.requests)
	drives := max(float64(general[0])/float64(max(1, without[0])), float64(general[1])/float64(max(1, without[1])))
	switch {
	case drives >= RouteFactor:
		r.Reason, r.Factor = Drives, drives
	case fewer < RouteFactor:
	case !slices.Contains([]string{"GET", "HEAD", "OPTIONS"}, r.Method):
		r.Reason, r.Factor = Writes, fewer
	case slower >= max(RouteFactor, larger):
		r.Reason, r.Factor = Slow, slower
	case larger >= RouteFactor:
		r.Reason, r.Factor = Large, larger
	}
	return r.Reason != NoReason
}

func ratio(part float64, parts int64, whole float64, wholes int64) float64 {
	if whole == 0 || parts == 0 {
		return 0
	}
	return part / float64(parts) * float64(wholes) / whole
}

// mean returns the sums over all routes.
func (t *Trace) mean() (all weight) {
	for _, w := range t.weights {
		all.requests, all.bytes, all.seconds = all.requests+w.requests, all.bytes+w.bytes, all.seconds+w.seconds
	}
	return all
}

// without returns the least limits for all routes but one that refuse no client whom the general pair spares. If the
// route is all that most clients request, it is no route among others, and without returns the general limits.
func (t *Trace) without(ctx context.Context, s *Suggestion, route uint32) (least [2]int64, err error) {
	demands, err := t.peaks(ctx, len(t.clients), func(e *event) int {
		if e.route == route {
			return -1
		}
		return int(e.client)
	}, s.Burst.Window, s.Sustained.Window)
	if err != nil {
		return least, err
	}
	clients := 0
	for c := range t.clients {
		if demands[0].byClient[c] > 0 {
			clients++
		}
		for w := range least {
			if !s.affects(uint32(c)) {
				least[w] = max(least[w], demands[w].byClient[c])
			}
		}
	}
	if rest := t.counts.Requests - t.weights[route].requests; clients < leastRouteClients || float64(rest) < leastRouteShare*float64(t.counts.Requests) {
		return s.general(), nil
	}
	return least, nil
}

func (s *Suggestion) general() [2]int64 { return [2]int64{s.Limits[0].Units, s.Limits[1].Units} }

// affects reports whether the pair would refuse a client at some point.
func (s *Suggestion) affects(client uint32) bool {
	return s.Burst.byClient[client] > s.Limits[0].Units || s.Sustained.byClient[client] > s.Limits[1].Units
}

// subjects numbers the clients of each group.
type subjects struct {
	numbers map[uint64]int
	all     []subject
}

type subject struct {
	group  int
	client uint32
}

func newSubjects(clients int) *subjects { return &subjects{numbers: make(map[uint64]int, clients)} }

func (s *subjects) number(group int, client uint32) int {
	key := uint64(group)<<32 | uint64(client)
	n, known := s.numbers[key]
	if !known {
		n = len(s.all)
		s.numbers[key] = n
		s.all = append(s.all, subject{group, client})
	}
	return n
}
