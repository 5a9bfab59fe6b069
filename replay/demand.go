package replay

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"example.com/sash"
)

// A Demand is what clients requested within a window, as if nothing limited them.
type Demand struct {
	// Window is the length of a sliding window. For a calendar window it is 0, and Period names it: "day@Europe/Paris".
	Window time.Duration
	Period string
	// Peaks is the most units that each client requested in any such window, in ascending order.
	Peaks []int64

	byClient []int64
}

// Demand finds each client's peak. The window must be at least a microsecond.
func (t *Trace) Demand(window time.Duration) *Demand {
	d := &Demand{Window: window, byClient: make([]int64, len(t.clients))}
	g, length := t.byClient(), window.Microseconds()
	for c := range t.clients {
		events := g.of(c)
		tail, sum := 0, int64(0)
		for _, e := range events {
			sum += t.events[e].cost
			for t.events[events[tail]].at <= t.events[e].at-length {
				sum -= t.events[events[tail]].cost
				tail++
			}
			d.byClient[c] = max(d.byClient[c], sum)
		}
	}
	d.Peaks = slices.Sorted(slices.Values(d.byClient))
	return d
}

// CalendarDemand finds each client's peak in the periods of a calendar limit. It ignores the limit's units. The error is
// [sash.ErrInvalidLimit].
func (t *Trace) CalendarDemand(l sash.Limit) (*Demand, error) {
	policy, err := sash.NewPolicy(nil, sash.Limit{Units: 1, Period: l.Period, Zone: l.Zone})
	if err != nil {
		return nil, err
	}
	_, name, _ := strings.Cut(sash.PerCalendar(1, l.Period, l.Zone).String(), "/")
	d, g, period := &Demand{Period: name, byClient: make([]int64, len(t.clients))}, t.byClient(), policy.Limits[0]
	for c := range t.clients {
		sum, end := int64(0), int64(math.MinInt64)
		for _, i := range g.of(c) {
			e := &t.events[i]
			if e.at >= end {
				sum = 0
				_, end = period.Bounds(e.at)
			}
			sum += e.cost
			d.byClient[c] = max(d.byClient[c], sum)
		}
	}
	d.Peaks = slices.Sorted(slices.Values(d.byClient))
	return d, nil
}

// Quantile returns the smallest peak that at least a share q of the clients do not exceed: 0.5 is the
// median, 1 the largest. It is 0 without clients.
func (d *Demand) Quantile(q float64) int64 {
	n := len(d.Peaks)
	if n == 0 {
		return 0
	}
	return d.Peaks[min(n-1, max(0, int(math.Ceil(q*float64(n)))-1))]
}

// Affected returns how many clients a sliding limit of units in the window would refuse at some point, if no request
// costs more than that.
func (d *Demand) Affected(units int64) int {
	at, _ := slices.BinarySearch(d.Peaks, units+1)
	return len(d.Peaks) - at
}

// Least returns the smallest limit, at least 1, that affects at most the given number of clients.
func (d *Demand) Least(clients int) int64 {
	if clients >= len(d.Peaks) {
		return 1
	}
	return max(1, d.Peaks[len(d.Peaks)-1-clients])
}

// A Point of a curve is a limit and the clients that it affects.
type Point struct {
	Units    int64   `json:"units"`
	Affected int     `json:"clients_affected"`
	Share    float64 `json:"share"`
}

// Curve returns the limits at which the number of affected clients changes, from 1 to the first that affects none.
func (d *Demand) Curve() []Point {
	var curve []Point
	add := func(units int64) {
		n := d.Affected(units)
		curve = append(curve, Point{units, n, share(int64(n), int64(len(d.Peaks)))})
	}
	for i, peak := range d.Peaks {
		if i == 0 && peak > 1 {
			add(1)
		}
		if i == 0 || peak != d.Peaks[i-1] {
			add(peak)
		}
	}
	return curve
}

// Knee returns the point of a curve that is furthest below the straight line between its ends, over the logarithm of the
// limit. To its left a smaller limit affects many more clients; to its right a larger one spares few. It reports false
// for a curve of fewer than three points.
func Knee(curve []Point) (Point, bool) {
	n := len(curve)
	if n < 3 {
		return Point{}, false
	}
	first, last := curve[0], curve[n-1]
	wide := math.Log(float64(last.Units)) - math.Log(float64(first.Units))
	tall := first.Share - last.Share
	best, most := first, 0.0
	for _, p := range curve[1 : n-1] {
		x := (math.Log(float64(p.Units)) - math.Log(float64(first.Units))) / wide
		y := (p.Share - last.Share) / tall
		if below := 1 - x - y; below > most {
			best, most = p, below
		}
	}
	return best, most > 0
}

// A DemandReport summarizes a Demand.
type DemandReport struct {
	Window string  `json:"window"`
	P50    int64   `json:"p50"`
	P90    int64   `json:"p90"`
	P99    int64   `json:"p99"`
	P999   int64   `json:"p99_9"`
	Most   int64   `json:"most"`
	Knee   *Point  `json:"knee,omitempty"`
	Curve  []Point `json:"curve"`
}

// Report returns percentiles of the clients' peaks, and the curve.
func (d *Demand) Report() DemandReport {
	r := DemandReport{
		Window: cmp.Or(d.Period, windowName(d.Window)), P50: d.Quantile(0.5), P90: d.Quantile(0.9), P99: d.Quantile(0.99), P999: d.Quantile(0.999),
		Most: d.Quantile(1), Curve: d.Curve(),
	}
	if knee, ok := Knee(r.Curve); ok {
		r.Knee = &knee
	}
	return r
}

// Windows returns the distinct sliding windows of candidates, shortest first.
func Windows(candidates []Candidate) []time.Duration {
	var all []time.Duration
	for _, l := range limitsOf(candidates) {
		if l.Period == 0 {
			all = append(all, l.Window)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func limitsOf(candidates []Candidate) (all []sash.Limit) {
	for i := range candidates {
		for _, rule := range candidates[i].rules() {
			if !rule.Refuses {
				all = append(all, rule.Limits...)
			}
		}
	}
	return all
}

// Demands returns the demand in the windows of candidates: first the sliding ones, shortest first, then those of the
// calendar. If candidates have rules, each demand covers the clients of the rules with that window, and is left out if
// there are none. The error is [sash.ErrInvalidLimit].
func (t *Trace) Demands(candidates []Candidate) ([]*Demand, error) {
	var all []*Demand
	for _, w := range Windows(candidates) {
		d := t.Demand(w)
		if t.only(d, candidates, func(l sash.Limit) bool { return l.Period == 0 && l.Window == w }) {
			all = append(all, d)
		}
	}
	sliding := len(all)
	for _, l := range limitsOf(candidates) {
		if l.Period == 0 {
			continue
		}
		d, err := t.CalendarDemand(l)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(all[sliding:], func(known *Demand) bool { return known.Period == d.Period }) {
			continue
		}
		if t.only(d, candidates, func(other sash.Limit) bool { return other.Period == l.Period && zone(other) == zone(l) }) {
			all = append(all, d)
		}
	}
	return all, nil
}

func zone(l sash.Limit) string {
	if l.Zone == nil {
		return time.UTC.String()
	}
	return l.Zone.String()
}

// only keeps in a demand the clients that some candidate holds to a limit with such a window. It reports false if there
// are none.
func (t *Trace) only(d *Demand, candidates []Candidate, like func(sash.Limit) bool) bool {
	held := make(map[int]bool)
	for i := range candidates {
		for j, rule := range candidates[i].rules() {
			held[j] = held[j] || !rule.Refuses && slices.ContainsFunc(rule.Limits, like)
		}
	}
	d.Peaks = d.Peaks[:0]
	for c, peak := range d.byClient {
		if held[t.clients[c].rule] {
			d.Peaks = append(d.Peaks, peak)
		}
	}
	slices.Sort(d.Peaks)
	return len(d.Peaks) > 0
}

// windowName formats a window as in limits: 5m, 1h, 7d.
func windowName(d time.Duration) string {
	for _, unit := range []struct {
		of   time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}} {
		if d >= unit.of && d%unit.of == 0 {
			return fmt.Sprintf("%d%s", d/unit.of, unit.name)
		}
	}
	return d.String()
}
