package replay

import (
	"cmp"
	"context"
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

// Demand finds each client's peak. The window must be at least a microsecond. The error is that of the context or the
// trace.
func (t *Trace) Demand(ctx context.Context, window time.Duration) (*Demand, error) {
	all, err := t.sliding(ctx, window)
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// A usage is the units of a client in the current window, and the most so far.
type usage struct{ now, most int64 }

func (u *usage) add(cost int64) {
	u.now += cost
	u.most = max(u.most, u.now)
}

// sliding finds the peaks in sliding windows in one pass. For each window a second pass follows, of the events that leave it.
func (t *Trace) sliding(ctx context.Context, windows ...time.Duration) ([]*Demand, error) {
	return t.peaks(ctx, len(t.clients), func(e *event) int { return int(e.client) }, windows...)
}

// peaks is sliding for other subjects than clients. Of a request it asks for the number of its subject: below 0 it has
// none, and numbers may grow with the requests.
func (t *Trace) peaks(ctx context.Context, subjects int, subject func(*event) int, windows ...time.Duration) ([]*Demand, error) {
	type tail struct {
		length int64
		oldest int // place of the oldest event in the window
		used   []usage
	}
	tails := make([]tail, len(windows))
	for i, w := range windows {
		tails[i] = tail{length: w.Microseconds(), used: make([]usage, subjects)}
	}
	err := t.each(ctx, func(e *event) error {
		n := subject(e)
		for i := range tails {
			w := &tails[i]
			for t.events[w.oldest].at <= e.at-w.length { // never e itself
				gone := &t.events[w.oldest]
				if n := subject(gone); n >= 0 {
					w.used[n].now -= gone.cost
				}
				w.oldest++
			}
			for n >= len(w.used) {
				w.used = append(w.used, usage{})
			}
			if n >= 0 {
				w.used[n].add(e.cost)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	all := make([]*Demand, len(windows))
	for i, w := range windows {
		all[i] = newDemand(tails[i].used)
		all[i].Window = w
	}
	return all, nil
}

func newDemand(used []usage) *Demand {
	d := &Demand{byClient: make([]int64, len(used))}
	for i := range used {
		d.byClient[i] = used[i].most
	}
	d.Peaks = slices.Sorted(slices.Values(d.byClient))
	return d
}

// CalendarDemand finds each client's peak in the periods of a calendar limit. It ignores the limit's units. The error is
// [sash.ErrInvalidLimit], or that of the context or the trace.
func (t *Trace) CalendarDemand(ctx context.Context, l sash.Limit) (*Demand, error) {
	policy, err := sash.NewPolicy(nil, sash.Limit{Units: 1, Period: l.Period, Zone: l.Zone})
	if err != nil {
		return nil, err
	}
	used, ends, end := make([]usage, len(t.clients)), make([]int64, len(t.clients)), int64(math.MinInt64)
	err = t.each(ctx, func(e *event) error {
		if e.at >= end {
			_, end = policy.Limits[0].Bounds(e.at)
		}
		if ends[e.client] != end { // the client's first request in the period
			ends[e.client], used[e.client].now = end, 0
		}
		used[e.client].add(e.cost)
		return nil
	})
	if err != nil {
		return nil, err
	}
	d := newDemand(used)
	_, d.Period, _ = strings.Cut(sash.PerCalendar(1, l.Period, l.Zone).String(), "/")
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
	curve := []Point{}
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
// there are none. The error is [sash.ErrInvalidLimit], or that of the context or the trace.
func (t *Trace) Demands(ctx context.Context, candidates []Candidate) ([]*Demand, error) {
	var all []*Demand
	inSliding, err := t.sliding(ctx, Windows(candidates)...)
	if err != nil {
		return nil, err
	}
	for _, d := range inSliding {
		if t.only(d, candidates, func(l sash.Limit) bool { return l.Period == 0 && l.Window == d.Window }) {
			all = append(all, d)
		}
	}
	sliding := len(all)
	for _, l := range limitsOf(candidates) {
		if l.Period == 0 {
			continue
		}
		d, err := t.CalendarDemand(ctx, l)
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
