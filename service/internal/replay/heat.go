package replay

import (
	"cmp"
	"slices"
	"time"
)

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
