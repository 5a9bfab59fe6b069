package redisbench

import (
	"fmt"
	"time"

	"example.com/sash"
)

// A load is a state of the log and the calls that it then receives.
type load struct {
	name   string
	cost   int64
	keys   int // the calls are on these in turn
	fill   int // decisions that bring the log into the state
	limits []sash.Limit
	// spans take the place of limits: windows that hold this many decisions at the contender's own speed, which
	// is measured first, in each round. Their limits are so far above that no unsteady speed of the machine
	// causes refusals, which cost less.
	spans []int
}

// withRoom starts from nothing and stays far from the limit: the log grows as it does in use.
func withRoom(cost int64) load {
	return load{name: "with room", cost: cost, keys: 1, limits: []sash.Limit{sash.Every(sash.MaxEntries, time.Hour)}}
}

// fresh spreads the decisions over many keys, ten on each.
func fresh(decisions int) load {
	return load{name: "ten calls a key", cost: 1, keys: max(1, decisions/10), limits: []sash.Limit{sash.PerMinute(60)}}
}

// leaving keeps about as many calls in the window: as one leaves, the next one comes.
func leaving(calls int, cost int64) load {
	return load{
		name: fmt.Sprintf("one leaves as one comes, %d in the window", calls),
		cost: cost, keys: 1, fill: calls * 12 / 10, spans: []int{calls},
	}
}

// twoLeaving is leaving with two windows.
func twoLeaving(short, long int) load {
	return load{
		name: fmt.Sprintf("one leaves as one comes, %d and %d in the windows", short, long),
		cost: 1, keys: 1, fill: long * 12 / 10, spans: []int{short, long},
	}
}

// twoWithRoom is withRoom with two windows.
func twoWithRoom() load {
	return load{name: "two windows with room", cost: 1, keys: 1,
		limits: []sash.Limit{sash.Every(50_000, time.Minute), sash.Every(sash.MaxEntries, time.Hour)}}
}

// refused is a full window that nothing leaves.
func refused(cost int64) load {
	return load{name: "refused", cost: cost, keys: 1, fill: 300, limits: []sash.Limit{sash.Every(300*cost, time.Hour)}}
}

// holding keeps n calls in the window of each key.
func holding(n int) load {
	keys := max(1, 1000/n)
	span := n * keys
	if n == sash.MaxEntries {
		span = span * 9 / 10 // stay below the limit
	}
	return load{name: fmt.Sprintf("%d calls in the window", n), cost: 1, keys: keys, fill: n * keys * 11 / 10, spans: []int{span}}
}

// jobs returns the decisions, of which one comes every period.
func (l load) jobs(period time.Duration) []job {
	limits := l.limits
	for i, calls := range l.spans {
		window := max(sash.MinWindow, (time.Duration(calls) * period).Truncate(time.Microsecond))
		units := int64(sash.MaxEntries - (len(l.spans) - 1 - i)) // a shorter window has fewer
		limits = append(limits, sash.Every(units, window))
	}
	jobs := make([]job, l.keys)
	for i := range jobs {
		jobs[i] = job{fmt.Sprintf("client:%06d", i), l.cost, limits}
	}
	return jobs
}
