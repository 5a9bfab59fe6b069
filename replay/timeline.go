package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"example.com/sash"
)

// A Moment is one request of a client and its decision.
type Moment struct {
	At      time.Time `json:"at"`
	Cost    int64     `json:"cost"`
	Allowed bool      `json:"allowed"`
	// Used is the units in each limit's window after the decision.
	Used []int64 `json:"used"`
}

// Timeline replays one client's requests. It returns an error if there is no such client.
func (t *Trace) Timeline(ctx context.Context, c Candidate, name string) ([]Moment, error) {
	number, err := t.number(name)
	if err != nil {
		return nil, err
	}
	b, err := t.bench(&c)
	if err != nil {
		return nil, err
	}
	limits := c.rules()[t.clients[number].rule].Limits
	var all []Moment
	for _, i := range t.byClient().of(number) {
		e := t.events[i]
		res, err := b.decide(ctx, e.at, &e, e.cost)
		if errors.Is(err, sash.ErrCostAboveLimit) {
			res, err = b.decide(ctx, e.at, &e, 0)
			res.Allowed = false
		}
		if err != nil {
			return nil, err
		}
		m := Moment{At: time.UnixMicro(e.at).UTC(), Cost: e.cost, Allowed: res.Allowed}
		for j, l := range limits {
			m.Used = append(m.Used, l.Units-res.Limits()[j].Remaining)
		}
		all = append(all, m)
	}
	return all, nil
}

func (t *Trace) number(name string) (int, error) {
	number := slices.IndexFunc(t.clients, func(x client) bool { return x.name == name })
	if number < 0 {
		return 0, fmt.Errorf("the log has no client %q", name)
	}
	return number, nil
}

// Client returns the name of one of the most refused clients as the key expression returned it. Outcomes may hide it.
func (t *Trace) Client(w Worst) string { return t.clients[w.client].name }

// Busiest returns at most n clients with the most requests.
func (t *Trace) Busiest(n int) []string {
	g := t.byClient()
	numbers := make([]int, len(t.clients))
	for i := range numbers {
		numbers[i] = i
	}
	slices.SortStableFunc(numbers, func(a, b int) int { return cmp.Compare(len(g.of(b)), len(g.of(a))) })
	var names []string
	for _, i := range numbers[:min(n, len(numbers))] {
		names = append(names, t.clients[i].name)
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
	for i, name := range clients {
		h.Units[i] = make([]int64, steps)
		number := slices.IndexFunc(t.clients, func(x client) bool { return x.name == name })
		if number < 0 {
			continue
		}
		for _, j := range t.byClient().of(number) {
			e := t.events[j]
			h.Units[i][(e.at-first.UnixMicro())/h.Step.Microseconds()] += e.cost
		}
	}
	return h
}
