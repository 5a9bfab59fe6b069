package htmlreport

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"example.com/sash/service/internal/replay"
)

// charts are the numbers that report.js draws. Times are milliseconds since the epoch.
type charts struct {
	Noun    string  `json:"noun"`
	Curve   *curve  `json:"curve,omitempty"`
	Heat    *heat   `json:"heat,omitempty"`
	Windows []chart `json:"windows,omitempty"`
}

// A curve is the clients affected over the limit, a line for each window.
type curve struct {
	Lines []line `json:"lines"`
	Tried []mark `json:"tried"`
}

type line struct {
	Window string         `json:"window"`
	Points []replay.Point `json:"points"`
}

// A mark is a limit that was tried, on the line of its window.
type mark struct {
	Limit string `json:"limit"`
	Line  int    `json:"line"`
	replay.Point
}

const (
	mostMarks  = 24
	mostPoints = 1500 // of a line: more than a screen has columns
)

func (p *Page) curve() *curve {
	c := &curve{Tried: []mark{}}
	for _, d := range p.Demand {
		if len(d.Curve) > 0 {
			c.Lines = append(c.Lines, line{d.Window, fewer(d.Curve)})
		}
	}
	if c.Lines == nil {
		return nil
	}
	for _, o := range p.Outcomes {
		for _, limit := range o.Limits {
			text, window, _ := strings.Cut(limit, "/")
			units, err := strconv.ParseInt(text, 10, 64)
			known := slices.ContainsFunc(c.Tried, func(m mark) bool { return m.Limit == limit })
			i := slices.IndexFunc(p.Demand, func(d replay.DemandReport) bool { return d.Window == window && len(d.Curve) > 0 })
			if err == nil && !known && i >= 0 && len(c.Tried) < mostMarks {
				line := slices.IndexFunc(c.Lines, func(l line) bool { return l.Window == window })
				c.Tried = append(c.Tried, mark{limit, line, at(p.Demand[i].Curve, units)})
			}
		}
	}
	return c
}

// at returns the clients that a limit affects, by the curve of its window.
func at(curve []replay.Point, units int64) replay.Point {
	i, exact := slices.BinarySearchFunc(curve, units, func(p replay.Point, units int64) int { return int(min(1, max(-1, p.Units-units))) })
	if !exact {
		i--
	}
	p := curve[max(i, 0)] // below 0: less than the curve's first limit, which is 1
	p.Units = units
	return p
}

// fewer leaves points out that lie too close to the one before, on a logarithmic axis, to be told apart.
func fewer(curve []replay.Point) []replay.Point {
	for step := 1.0; len(curve) > mostPoints; step *= 1.001 {
		var some []replay.Point
		for i, p := range curve {
			if i == 0 || i == len(curve)-1 || float64(p.Units) >= step*float64(some[len(some)-1].Units) {
				some = append(some, p)
			}
		}
		curve = some
	}
	return curve
}

// A row of the curve's table is a limit and the clients that it affects in each window.
type row struct {
	Units int64
	Cells []replay.Point
}

// Table returns a few limits: a row each time that the limit has grown by a half.
func (c *curve) Table() (rows []row) {
	var units []int64
	for _, l := range c.Lines {
		for _, p := range l.Points {
			units = append(units, p.Units)
		}
	}
	slices.Sort(units)
	last := int64(0)
	for i, n := range units {
		if i < len(units)-1 && (n == last || 2*n < 3*last) {
			continue
		}
		last = n
		r := row{Units: n}
		for _, l := range c.Lines {
			r.Cells = append(r.Cells, at(l.Points, n))
		}
		rows = append(rows, r)
	}
	return rows
}

// A heat is the units that clients requested over time, the first client on top.
type heat struct {
	Names []string   `json:"names"`
	Start float64    `json:"start"`
	Step  float64    `json:"step"`
	Steps int        `json:"steps"`
	Cells [][3]int64 `json:"cells"` // step, client, units: all that are not 0
	Most  int64      `json:"most"`
}

// A busy is a row of the heat map's table: a client, its units, and the step with most of them.
type busy struct {
	Name        string
	Units, Most int64
	At          time.Time
}

func (p *Page) heat() (*heat, []busy) {
	h := p.Heat
	if len(h.Clients) == 0 || len(h.Units) == 0 || h.Step < time.Millisecond { // a log of one moment has no course
		return nil, nil
	}
	m := &heat{Start: millis(h.Start), Step: float64(h.Step) / 1e6, Steps: len(h.Units[0]), Cells: [][3]int64{}, Most: 1}
	var table []busy
	for i, name := range h.Clients {
		m.Names = append(m.Names, shown(name))
		b := busy{Name: name}
		for j, n := range h.Units[i] {
			if n == 0 {
				continue
			}
			m.Cells = append(m.Cells, [3]int64{int64(j), int64(i), n})
			if b.Units += n; n > b.Most {
				b.Most, b.At = n, h.Start.Add(time.Duration(j)*h.Step)
			}
		}
		m.Most = max(m.Most, b.Most)
		table = append(table, b)
	}
	return m, table
}

func millis(t time.Time) float64 { return float64(t.UnixMicro()) / 1e3 }
