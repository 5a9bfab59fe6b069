package htmlreport

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"time"

	"example.com/sash"
)

// A chart is the units in the window of one limit over time.
type chart struct {
	Limit   string     `json:"limit"`
	Units   int64      `json:"units"`
	From    float64    `json:"from"`
	To      float64    `json:"to"`
	Band    []float64  `json:"band,omitempty"` // the window that ends at the first refusal
	Steps   []point    `json:"steps"`
	Refused []refusals `json:"refused"`

	Around time.Time `json:"-"`
	Count  int       `json:"-"` // all refusals that are drawn
	First  []refusal `json:"-"` // the first of them
	Most   int64     `json:"-"`
}

// A point has a time, in seconds since the epoch, and the units in the window from then on.
type point struct{ X, Y float64 }

// MarshalJSON implements json.Marshaler.
func (p point) MarshalJSON() ([]byte, error) { return json.Marshal([2]float64{1e3 * p.X, p.Y}) }

// refusals are so close to each other that they are one mark: the time of the first, and how many they are.
type refusals [2]float64

// A refusal is a refused call, with the units in the window.
type refusal struct {
	At         time.Time
	Cost, Used int64
}

const (
	columns      = 500 // of a chart, in which the highest and the lowest can be told apart
	mostRefusals = 20  // in a table
)

// chart draws the window of one limit around its first refusal, or else the time at which it was fullest.
func (t *Timeline) chart(number int) chart {
	limit := t.Limits[number]
	window := limit.Window
	switch limit.Period {
	case sash.CalendarHour:
		window = time.Hour
	case sash.CalendarDay:
		window = 24 * time.Hour
	case sash.CalendarMonth:
		window = 31 * 24 * time.Hour
	}
	around := t.around(number)
	from, to := around.Add(-window-window/2), around.Add(window+window/2)
	c := chart{
		Limit: limit.String(), Units: limit.Units, From: millis(from), To: millis(to), Around: around, Most: t.highest(number),
		Steps: thin(t.used(number, from, to), unix(from), unix(to)), Refused: []refusals{},
	}
	if limit.Period == 0 {
		c.Band = []float64{millis(around.Add(-window)), millis(around)}
	}
	column := (c.To - c.From) / columns
	for _, m := range t.Moments {
		if m.Allowed || m.At.Before(from) || m.At.After(to) {
			continue
		}
		if c.Count++; c.Count <= mostRefusals {
			c.First = append(c.First, refusal{m.At, m.Cost, m.Used[number]})
		}
		if last := len(c.Refused) - 1; last >= 0 && millis(m.At) < c.Refused[last][0]+column {
			c.Refused[last][1]++
		} else {
			c.Refused = append(c.Refused, refusals{millis(m.At), 1})
		}
	}
	return c
}

// thin leaves out steps that a chart cannot show: of each column it keeps the first, the last, the lowest and the highest.
func thin(steps []point, from, to float64) []point {
	if len(steps) <= 4*columns {
		return steps
	}
	var some []point
	for len(steps) > 0 {
		end := from + (math.Floor((steps[0].X-from)/(to-from)*columns)+1)/columns*(to-from)
		n := 1
		for n < len(steps) && steps[n].X < end {
			n++
		}
		low, high := 0, 0
		for i, s := range steps[:n] {
			if s.Y < steps[low].Y {
				low = i
			}
			if s.Y > steps[high].Y {
				high = i
			}
		}
		keep := []int{0, low, high, n - 1}
		slices.Sort(keep)
		for _, i := range slices.Compact(keep) {
			some = append(some, steps[i])
		}
		steps = steps[n:]
	}
	return some
}

func unix(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

// around returns the time of the limit's first refusal, or else the time at which its window was fullest.
func (t *Timeline) around(number int) time.Time {
	full := t.Moments[0]
	for _, m := range t.Moments {
		if !m.Allowed && m.Used[number]+m.Cost > t.Limits[number].Units { // another limit may have refused
			return m.At
		}
		if m.Used[number] > full.Used[number] {
			full = m
		}
	}
	return full.At
}

func (t *Timeline) highest(number int) (most int64) {
	for _, m := range t.Moments {
		most = max(most, m.Used[number])
	}
	return most
}

// used returns the units in the window as steps. With an exact algorithm and a sliding window it falls when a unit
// leaves; otherwise it is known only at the times of requests.
func (t *Timeline) used(number int, from, to time.Time) []point {
	limit := t.Limits[number]
	type change struct {
		at    time.Time
		units int64
	}
	var changes []change
	if !t.Algorithm.Exact() || limit.Period != 0 {
		var steps []point
		for _, m := range t.Moments {
			if !m.At.Before(from) && !m.At.After(to) {
				steps = append(steps, point{X: unix(m.At), Y: float64(m.Used[number])})
			}
		}
		return steps
	}
	for _, m := range t.Moments {
		if m.Allowed {
			changes = append(changes, change{m.At, m.Cost}, change{m.At.Add(limit.Window), -m.Cost})
		}
	}
	// Units that leave make room for those that arrive at the same instant.
	slices.SortStableFunc(changes, func(a, b change) int {
		if c := a.at.Compare(b.at); c != 0 {
			return c
		}
		return cmp.Compare(a.units, b.units)
	})
	units := int64(0)
	steps := []point{{X: unix(from)}}
	for _, c := range changes {
		if units += c.units; c.at.Before(from) {
			steps[0].Y = float64(units)
		} else if last := len(steps) - 1; steps[last].X == unix(c.at) { // one step for all changes at one instant
			steps[last].Y = float64(units)
		} else if !c.at.After(to) {
			steps = append(steps, point{X: unix(c.at), Y: float64(units)})
		}
	}
	return append(steps, point{X: unix(to), Y: steps[len(steps)-1].Y})
}
