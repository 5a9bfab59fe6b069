package replay

import (
	"context"
	"fmt"

	"example.com/sash"
)

// A Division is limits for parts of the requests, by route. Each client is charged in each part apart. They refuse no
// client whom the general pair spares.
type Division struct {
	Parts []Part
	// Affected counts the clients that are refused at some point in any part.
	Affected int
}

// A Part is the requests of some routes.
type Part struct {
	Requests int64
	Clients  int
	// Limits are over the windows of the general pair.
	Limits []sash.Limit
}

// Divide proposes limits for the parts of a trace, in place of a general pair that [Trace.Suggest] proposed. Part returns
// the number of the part that the requests of a route are in, below the given number of parts, or a negative number if no
// part limits them. The last part is everything else: parts with few clients have its limits, or larger ones, and it has the
// general pair if it has few itself. The error is that of the context or the trace.
func (t *Trace) Divide(ctx context.Context, s *Suggestion, parts int, part func(route string) int) (*Division, error) {
	d, of := &Division{Parts: make([]Part, parts)}, t.byRoute(part)
	subjects := newSubjects(len(t.clients))
	demands, err := t.peaks(ctx, 0, func(e *event) int {
		if of[e.route] < 0 {
			return -1
		}
		return subjects.number(of[e.route], e.client)
	}, s.Burst.Window, s.Sustained.Window)
	if err != nil {
		return nil, err
	}
	least := make([][2]int64, parts)
	for n, who := range subjects.all {
		d.Parts[who.group].Clients++
		for w := range demands {
			if !s.affects(who.client) {
				least[who.group][w] = max(least[who.group][w], demands[w].byClient[n])
			}
		}
	}
	for i, w := range t.weights {
		if of[i] >= 0 {
			d.Parts[of[i]].Requests += w.requests
		}
	}
	if d.Parts[parts-1].Clients < leastRouteClients {
		least[parts-1] = s.general()
	}
	rest := least[parts-1]
	for i := range d.Parts {
		p, w := &d.Parts[i], least[i]
		if p.Clients < leastRouteClients {
			w[0], w[1] = max(w[0], rest[0]), max(w[1], rest[1])
		}
		first := max(1, w[0])
		p.Limits = []sash.Limit{sash.Every(first, s.Burst.Window), sash.Every(max(first, w[1]), s.Sustained.Window)}
	}
	affected := make(map[uint32]bool)
	for n, who := range subjects.all {
		limits := d.Parts[who.group].Limits
		if demands[0].byClient[n] > limits[0].Units || demands[1].byClient[n] > limits[1].Units {
			affected[who.client] = true
		}
	}
	d.Affected = len(affected)
	return d, nil
}

// Divided returns the trace in which each part has a rule with its number, for a [Candidate] with rules. The names of
// clients are those that name returns. The error is that of the context or the trace.
func (t *Trace) Divided(ctx context.Context, part func(route string) int, name func(part int, client string) string) (*Trace, error) {
	var b Builder
	of := t.byRoute(part)
	err := t.each(ctx, func(e *event) error {
		s := t.selection(e)
		if s.Rule = of[e.route]; s.Rule >= 0 {
			s.Key = name(s.Rule, s.Key)
		}
		b.Add(e.at, s)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("by route: %w", err)
	}
	return b.Trace(), nil
}

func (t *Trace) byRoute(part func(route string) int) []int {
	of := make([]int, len(t.routes))
	for i, name := range t.routes {
		of[i] = part(name)
	}
	return of
}
