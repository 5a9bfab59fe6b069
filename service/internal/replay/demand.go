package replay

import (
	"cmp"
	"math"
	"slices"
	"time"

	"example.com/sash"
)

// A Demand is what clients requested within a window, as if nothing limited them.
type Demand struct {
	// Window is as limits write it: 1m, or for the calendar day@Europe/Paris.
	Window string `json:"window"`
	// P50 is the most units that half of the clients requested at most in any such window, and so on.
	P50  int64 `json:"p50"`
	P90  int64 `json:"p90"`
	P99  int64 `json:"p99"`
	P999 int64 `json:"p99_9"`
	Most int64 `json:"most"`
	// Curve has the limits at which the number of affected clients changes, from 1 to the first that affects none.
	Curve []Point `json:"curve"`
	// Peaks is the most units that each client requested in any such window, in ascending order.
	Peaks []int64 `json:"-"`

	byClient []int64
}

// A Point of a curve is a limit and the clients that it affects.
type Point struct {
	Units    int64   `json:"units"`
	Affected int     `json:"clients_affected"`
	Share    float64 `json:"share"`
}

// limits calls visit for every limit that a rule of a candidate holds clients to, with the index of the rule.
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

// Demands returns the demand in the windows of candidates: first the sliding ones, shortest first, then those of the
// calendar. If candidates have rules, each demand covers the clients of the rules with that window, and is left out if
// there are none. The limits must be valid.
func (t *Trace) Demands(candidates []Candidate) (all []*Demand) {
	var windows []sash.Limit              // one limit for each
	held := make(map[string]map[int]bool) // by window: the rules that have it
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

// Demand finds each client's peak in the window of a limit, which must be valid. It ignores the limit's units.
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

// peaks returns the most units of each client in any window.
func (t *Trace) peaks(first func(at int64) int64, units func(i int, e *event) int64) []int64 {
	used, peaks := make([]usage, len(t.clients)), make([]int64, len(t.clients))
	t.slide(first, func(i int, e *event, sign int64) { used[e.client].add(sign * units(i, e)) })
	for c, u := range used {
		peaks[c] = u.most
	}
	return peaks
}

// usage is a number now, and the most so far.
type usage struct{ now, most int64 }

func (u *usage) add(n int64) {
	u.now += n
	u.most = max(u.most, u.now)
}

// slide moves a window over the trace. It calls count for each event that enters, with a sign of 1, and before that for
// each that has left, with -1. First returns the start of the window that ends at an instant.
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

// ending returns the start of the sliding window of a length that ends at an instant.
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

// Affected returns how many clients a sliding limit of units in the window would refuse at some point, if no request
// costs more than that.
func (d *Demand) Affected(units int64) int {
	at, _ := slices.BinarySearch(d.Peaks, units+1)
	return len(d.Peaks) - at
}

// least returns the smallest limit, at least 1, that affects at most the given number of clients, whose peaks are sorted.
func least(peaks []int64, clients int) int64 {
	if clients >= len(peaks) {
		return 1
	}
	return max(1, peaks[len(peaks)-1-clients])
}
