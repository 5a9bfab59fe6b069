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

// mostMoments bounds a timeline. Tests make it small.
var mostMoments = 1_000_000

var errEnough = errors.New("the timeline is full")

// Timeline replays one client's requests, the first million of them. It returns an error if there is no such client.
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
	err = t.each(ctx, func(e *event) error {
		if int(e.client) != number {
			return nil
		}
		res, err := b.decide(ctx, e.at, e, e.cost)
		if errors.Is(err, sash.ErrCostAboveLimit) {
			res, err = b.decide(ctx, e.at, e, 0)
			res.Allowed = false
		}
		if err != nil {
			return err
		}
		m := Moment{At: time.UnixMicro(e.at).UTC(), Cost: e.cost, Allowed: res.Allowed}
		for j, l := range limits {
			m.Used = append(m.Used, l.Units-res.Limits()[j].Remaining)
		}
		if all = append(all, m); len(all) == mostMoments {
			return errEnough
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return nil, err
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
	numbers := make([]int, len(t.clients))
	for i := range numbers {
		numbers[i] = i
	}
	slices.SortStableFunc(numbers, func(a, b int) int { return cmp.Compare(t.clients[b].requests, t.clients[a].requests) })
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

// Heat sums the units of clients in the given number of equal steps of the trace's time. The error is that of the
// context or the trace.
func (t *Trace) Heat(ctx context.Context, clients []string, steps int) (Heat, error) {
	first, last := t.Span()
	h := Heat{Clients: clients, Start: first, Units: make([][]int64, len(clients))}
	h.Step = (last.Sub(first)/time.Duration(steps) + time.Microsecond).Truncate(time.Microsecond)
	rows := make(map[uint32][]int64)
	for i, name := range clients {
		h.Units[i] = make([]int64, steps)
		if number, err := t.number(name); err == nil {
			rows[uint32(number)] = h.Units[i]
		}
	}
	err := t.each(ctx, func(e *event) error {
		if row, ok := rows[e.client]; ok {
			row[(e.at-first.UnixMicro())/h.Step.Microseconds()] += e.cost
		}
		return nil
	})
	return h, err
}
