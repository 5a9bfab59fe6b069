package htmlreport

import (
	"cmp"
	"slices"
	"time"

	"example.com/sash/service/internal/replay"
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
	Most   int64     `json:"-"`
}

// A point is a time, in milliseconds since the epoch, and the units in the window from then on.
type point [2]float64

// refusals are so close to each other that they are one mark: the time of the first, and how many they are.
type refusals [2]float64

// chart draws the window of one limit around its first refusal, or else the time at which it was fullest.
func (t *Timeline) chart(number int) chart {
	limit := t.Limits[number]
	window := replay.Length(limit)
	around, most := t.around(number)
	from, to := around.Add(-window-window/2), around.Add(window+window/2)
	c := chart{
		Limit: limit.String(), Units: limit.Units, From: millis(from), To: millis(to), Around: around, Most: most, Refused: []refusals{},
	}
	c.Steps = thin(t.used(number, from, to), func(p point) int { return int((p[0] - c.From) / (c.To - c.From) * columns) }, func(p point) float64 { return p[1] })
	if limit.Period == 0 {
		c.Band = []float64{millis(around.Add(-window)), millis(around)}
	}
	column := (c.To - c.From) / columns
	for _, m := range t.Moments {
		if m.Allowed || m.At.Before(from) || m.At.After(to) {
			continue
		}
		c.Count++
		if last := len(c.Refused) - 1; last >= 0 && millis(m.At) < c.Refused[last][0]+column {
			c.Refused[last][1]++
		} else {
			c.Refused = append(c.Refused, refusals{millis(m.At), 1})
		}
	}
	return c
}

// around returns the time of the limit's first refusal, or else the time at which its window was fullest, and the most
// units that it ever had.
func (t *Timeline) around(number int) (at time.Time, most int64) {
	var refused time.Time
	at = t.Moments[0].At
	for _, m := range t.Moments {
		if refused.IsZero() && !m.Allowed && m.Used[number]+m.Cost > t.Limits[number].Units { // another limit may have refused
			refused = m.At
		}
		if m.Used[number] > most {
			at, most = m.At, m.Used[number]
		}
	}
	if !refused.IsZero() {
		at = refused
	}
	return at, most
}

// used returns the units in the window as steps. With an exact algorithm and a sliding window it falls when a unit
// leaves; otherwise it is known only at the times of requests.
func (t *Timeline) used(number int, from, to time.Time) (steps []point) {
	limit := t.Limits[number]
	if !t.Algorithm.Exact() || limit.Period != 0 {
		for _, m := range t.Moments {
			if !m.At.Before(from) && !m.At.After(to) {
				steps = append(steps, point{millis(m.At), float64(m.Used[number])})
			}
		}
		return steps
	}
	var changes []point // the units that enter, or leave
	for _, m := range t.Moments {
		if m.Allowed {
			changes = append(changes, point{millis(m.At), float64(m.Cost)}, point{millis(m.At.Add(limit.Window)), -float64(m.Cost)})
		}
	}
	slices.SortStableFunc(changes, func(a, b point) int { return cmp.Compare(a[0], b[0]) })
	units := 0.0
	steps = []point{{millis(from)}}
	for _, c := range changes {
		if units += c[1]; c[0] < millis(from) {
			steps[0][1] = units
		} else if last := len(steps) - 1; steps[last][0] == c[0] { // one step for all changes at one instant
			steps[last][1] = units
		} else if c[0] <= millis(to) {
			steps = append(steps, point{c[0], units})
		}
	}
	return append(steps, point{millis(to), steps[len(steps)-1][1]})
}
