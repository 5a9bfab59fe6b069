package htmlreport

import (
	"cmp"
	"fmt"
	"html/template"
	"slices"
	"time"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"example.com/sash"
)

// plot plots the units in the window of one limit over time, around its first refusal, or else the time at which it was
// fullest.
func (t *Timeline) plot(number int) (template.HTML, error) {
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

	p := newPlot()
	p.Title.Text = limit.String()
	p.X.Label.Text, p.Y.Label.Text = "time, UTC", "units in the window"
	p.X.Tick.Marker, p.Y.Tick.Marker = timeTicks{}, plainTicks{}
	p.Legend.Top, p.Legend.Left = true, true
	top := 1.15 * float64(limit.Units)
	if limit.Period == 0 {
		band, err := plotter.NewPolygon(plotter.XYs{{X: unix(around.Add(-window)), Y: 0}, {X: unix(around), Y: 0}, {X: unix(around), Y: top}, {X: unix(around.Add(-window)), Y: top}})
		if err != nil {
			return "", err
		}
		band.Color, band.Width = bandColor, 0
		p.Add(band)
		p.Legend.Add("the window at "+around.Format("15:04:05"), band)
	}
	used, err := plotter.NewLine(t.used(number, from, to))
	if err != nil {
		return "", err
	}
	used.StepStyle, used.Color, used.Width = plotter.PostStep, colors[0], vg.Points(1.5)
	line, err := plotter.NewLine(plotter.XYs{{X: unix(from), Y: float64(limit.Units)}, {X: unix(to), Y: float64(limit.Units)}})
	if err != nil {
		return "", err
	}
	line.Color, line.Dashes = limitColor, []vg.Length{vg.Points(4), vg.Points(3)}
	p.Add(used, line)
	p.Legend.Add("units in it", used)
	p.Legend.Add("the limit", line)
	var refused plotter.XYs
	for _, m := range t.Moments {
		if !m.Allowed && !m.At.Before(from) && !m.At.After(to) {
			refused = append(refused, plotter.XY{X: unix(m.At), Y: 1.05 * float64(limit.Units)})
		}
	}
	if len(refused) > 0 {
		crosses, err := plotter.NewScatter(refused)
		if err != nil {
			return "", err
		}
		crosses.GlyphStyle = draw.GlyphStyle{Color: refusalColor, Radius: 3, Shape: draw.CrossGlyph{}}
		p.Add(crosses)
		p.Legend.Add("refused", crosses)
	}
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = unix(from), unix(to), 0, 1.4*float64(limit.Units)
	if highest := t.highest(number); highest > limit.Units { // an approximate algorithm measured in a sliding window
		p.Y.Max = 1.4 * float64(highest)
	}
	return svg(p, tall, fmt.Sprintf("Units in the window of %s of one client over time, %d refusals shown", limit, len(refused)))
}

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
func (t *Timeline) used(number int, from, to time.Time) plotter.XYs {
	limit := t.Limits[number]
	type change struct {
		at    time.Time
		units int64
	}
	var changes []change
	if !t.Algorithm.Exact() || limit.Period != 0 {
		var steps plotter.XYs
		for _, m := range t.Moments {
			if !m.At.Before(from) && !m.At.After(to) {
				steps = append(steps, plotter.XY{X: unix(m.At), Y: float64(m.Used[number])})
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
	steps := plotter.XYs{{X: unix(from)}}
	for _, c := range changes {
		if units += c.units; c.at.Before(from) {
			steps[0].Y = float64(units)
		} else if last := len(steps) - 1; steps[last].X == unix(c.at) { // one step for all changes at one instant
			steps[last].Y = float64(units)
		} else if !c.at.After(to) {
			steps = append(steps, plotter.XY{X: unix(c.at), Y: float64(units)})
		}
	}
	return append(steps, plotter.XY{X: unix(to), Y: steps[len(steps)-1].Y})
}
