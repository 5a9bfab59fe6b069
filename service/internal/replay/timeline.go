package replay

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"example.com/sash"
)

// A Moment is one request of a client and its decision.
type Moment struct {
	At      time.Time
	Cost    int64
	Allowed bool
	// Used is the units in each limit's window after the decision.
	Used []int64
}

// mostMoments bounds a timeline. Tests make it small.
var mostMoments = 1_000_000

// Timeline replays one client's requests, the first million of them, and returns the rule that applies to the client. It
// returns an error if there is no such client.
func (t *Trace) Timeline(c Candidate, name string) (Rule, []Moment, error) {
	number := slices.IndexFunc(t.clients, func(x client) bool { return x.name == name })
	if number < 0 {
		return Rule{}, nil, fmt.Errorf("the log has no client %q", name)
	}
	b, err := t.bench(&c)
	if err != nil {
		return Rule{}, nil, err
	}
	rule := c.rules()[t.clients[number].rule]
	var all []Moment
	for i := range t.events {
		e := &t.events[i]
		if int(e.client) != number || len(all) == mostMoments {
			continue
		}
		res, err := b.decide(e, e.cost)
		if errors.Is(err, sash.ErrCostAboveLimit) {
			res, err = b.decide(e, 0)
			res.Allowed = false
		}
		if err != nil {
			return Rule{}, nil, err
		}
		m := Moment{At: time.UnixMicro(e.at).UTC(), Cost: e.cost, Allowed: res.Allowed}
		for i, l := range rule.Limits {
			m.Used = append(m.Used, l.Units-res.Limits()[i].Remaining)
		}
		all = append(all, m)
	}
	return rule, all, nil
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
