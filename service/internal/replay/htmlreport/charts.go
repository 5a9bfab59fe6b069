package htmlreport

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.com/sash/service/internal/replay"
)

// charts are the numbers that report.js draws. Times are milliseconds since the epoch.
type charts struct {
	Noun  string `json:"noun"`
	Curve *curve `json:"curve,omitempty"`
	Heat  *heat  `json:"heat,omitempty"`
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
	mostMarks = 24
	columns   = 500 // of a chart
)

func (p *Page) curve() *curve {
	if len(p.Demand) == 0 {
		return nil
	}
	c := &curve{Tried: []mark{}}
	for _, o := range p.Outcomes {
		for _, limit := range o.Limits {
			text, window, _ := strings.Cut(limit, "/")
			units, err := strconv.ParseInt(text, 10, 64)
			i := slices.IndexFunc(p.Demand, func(d *replay.Demand) bool { return d.Window == window })
			known := slices.ContainsFunc(c.Tried, func(m mark) bool { return m.Limit == limit })
			if err == nil && !known && i >= 0 && len(c.Tried) < mostMarks {
				c.Tried = append(c.Tried, mark{limit, i, at(p.Demand[i].Curve, units)})
			}
		}
	}
	for _, d := range p.Demand {
		width := math.Log(float64(d.Curve[len(d.Curve)-1].Units))
		column := func(p replay.Point) int { return int(columns * math.Log(float64(p.Units)) / width) }
		c.Lines = append(c.Lines, line{d.Window, thin(d.Curve, column)})
	}
	return c
}

// at returns the clients that a limit affects, by the curve of its window.
func at(curve []replay.Point, units int64) replay.Point {
	i, exact := slices.BinarySearchFunc(curve, units, func(p replay.Point, units int64) int { return cmp.Compare(p.Units, units) })
	if !exact {
		i--
	}
	p := curve[max(i, 0)] // below 0: less than the curve's first limit, which is 1
	p.Units = units
	return p
}

// thin leaves out what a chart cannot show of a curve, which falls: of each column it keeps the first point and the last.
func thin(curve []replay.Point, column func(replay.Point) int) (some []replay.Point) {
	if len(curve) <= 2*columns {
		return curve
	}
	for i, p := range curve {
		inside := i > 0 && i < len(curve)-1
		if !inside || column(p) != column(curve[i-1]) || column(p) != column(curve[i+1]) {
			some = append(some, p)
		}
	}
	return some
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

func (p *Page) heat() *heat {
	h := p.Heat
	if len(h.Clients) == 0 || len(h.Units) == 0 || h.Step < time.Millisecond { // a log of one moment has no course
		return nil
	}
	m := &heat{Start: float64(h.Start.UnixMicro()) / 1e3, Step: float64(h.Step) / 1e6, Steps: len(h.Units[0]), Cells: [][3]int64{}, Most: 1}
	for i, name := range h.Clients {
		m.Names = append(m.Names, shown(name))
		for j, n := range h.Units[i] {
			if n > 0 {
				m.Cells = append(m.Cells, [3]int64{int64(j), int64(i), n})
			}
			m.Most = max(m.Most, n)
		}
	}
	return m
}
