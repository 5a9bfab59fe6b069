package htmlreport

import (
	"fmt"
	"html/template"
	"image/color"
	"math"
	"strconv"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"example.com/sash/replay"
)

// curve plots the share of affected clients over the limit, one line per window.
func curve(demand []replay.DemandReport) (template.HTML, error) {
	p := newPlot()
	p.X.Label.Text, p.Y.Label.Text = "limit, units (logarithmic)", "clients affected, %"
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, logTicks{}
	p.Y.Tick.Marker = plainTicks{}
	p.Legend.Top = true
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = gridColor, gridColor
	p.Add(grid)
	largest := 2.0
	for i, d := range demand {
		points := make(plotter.XYs, len(d.Curve))
		for j, c := range d.Curve {
			points[j] = plotter.XY{X: float64(c.Units), Y: 100 * c.Share}
			largest = max(largest, float64(c.Units))
		}
		if len(points) == 0 {
			continue
		}
		line, err := plotter.NewLine(points)
		if err != nil {
			return "", err
		}
		line.StepStyle = plotter.PostStep
		line.Color, line.Width = colors[i%len(colors)], vg.Points(2)
		p.Add(line)
		p.Legend.Add("in any "+d.Window, line)
		if d.Knee == nil {
			continue
		}
		knee, err := plotter.NewScatter(plotter.XYs{{X: float64(d.Knee.Units), Y: 100 * d.Knee.Share}})
		if err != nil {
			return "", err
		}
		knee.GlyphStyle = draw.GlyphStyle{Color: colors[i%len(colors)], Radius: 4, Shape: draw.CircleGlyph{}}
		p.Add(knee)
	}
	p.X.Min, p.X.Max = 0.9, 1.2*largest
	p.Y.Min = 0
	p.Y.Max = 1.15 * max(p.Y.Max, 1) // leaves room for the legend
	return svg(p, tall, "The share of clients affected, over the limit")
}

// logTicks are 1, 2, 5, 10, 20, and so on.
type logTicks struct{}

// Ticks implements plot.Ticker.
func (logTicks) Ticks(least, most float64) (ticks []plot.Tick) {
	for decade := math.Pow(10, math.Floor(math.Log10(least))); decade <= most; decade *= 10 {
		for _, n := range []float64{1, 2, 5} {
			if v := n * decade; v >= least && v <= most {
				ticks = append(ticks, plot.Tick{Value: v, Label: strconv.FormatFloat(v, 'f', -1, 64)})
			}
		}
	}
	return ticks
}

// plainTicks are the default ticks without trailing zeros.
type plainTicks struct{}

// Ticks implements plot.Ticker.
func (plainTicks) Ticks(least, most float64) []plot.Tick {
	ticks := plot.DefaultTicks{}.Ticks(least, most)
	for i := range ticks {
		if !ticks[i].IsMinor() {
			ticks[i].Label = strconv.FormatFloat(ticks[i].Value, 'g', 6, 64)
		}
	}
	return ticks
}

// heatmap plots the units that clients requested over time, the first client on top.
func heatmap(h replay.Heat) (template.HTML, error) {
	p := newPlot()
	p.X.Label.Text = "time, UTC"
	p.X.Tick.Marker = timeTicks{}
	names := make([]string, len(h.Clients))
	for i, name := range h.Clients {
		names[len(names)-1-i] = short(name)
	}
	cells := grid{h}
	heat := plotter.NewHeatMap(cells, ramp{})
	heat.NaN = color.White
	if heat.Min >= heat.Max {
		heat.Max = heat.Min + 1
	}
	p.Add(heat)
	p.NominalY(names...)
	most := math.Expm1(heat.Max)
	return svg(p, 2*vg.Centimeter+vg.Length(len(names))*0.55*vg.Centimeter,
		fmt.Sprintf("Units requested by the %d busiest clients over time, at most %.0f in %v", len(names), most, h.Step.Round(time.Second)))
}

func short(name string) string {
	const most = 40
	if runes := []rune(name); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return name
}

// A grid is a Heat for the plot, as the logarithm of the units, so that few are visible beside many.
type grid struct{ replay.Heat }

// Dims implements plotter.GridXYZ.
func (g grid) Dims() (columns, rows int) { return len(g.Units[0]), len(g.Units) }

// X implements plotter.GridXYZ.
func (g grid) X(column int) float64 {
	return unix(g.Start.Add(g.Step*time.Duration(column) + g.Step/2))
}

// Y implements plotter.GridXYZ.
func (g grid) Y(row int) float64 { return float64(row) }

// Z implements plotter.GridXYZ.
func (g grid) Z(column, row int) float64 {
	n := g.Units[len(g.Units)-1-row][column]
	if n == 0 {
		return math.NaN()
	}
	return math.Log1p(float64(n))
}

// Min returns the minimum of Z.
func (g grid) Min() float64 { return math.Log1p(0) }

// Max returns the maximum of Z.
func (g grid) Max() float64 {
	most := int64(1)
	for _, row := range g.Units {
		for _, n := range row {
			most = max(most, n)
		}
	}
	return math.Log1p(float64(most))
}

// A ramp goes from a light to a dark blue.
type ramp struct{}

// Colors implements palette.Palette.
func (ramp) Colors() []color.Color {
	const steps = 32
	all := make([]color.Color, steps)
	for i := range all {
		f := float64(i) / (steps - 1)
		mix := func(from, to float64) uint8 { return uint8(from + f*(to-from)) }
		all[i] = color.RGBA{mix(222, 8), mix(235, 48), mix(247, 107), 255}
	}
	return all
}

func unix(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

// timeTicks are round times, about eight of them.
type timeTicks struct{}

var tickSteps = []time.Duration{
	time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 30 * time.Minute, time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour,
	24 * time.Hour, 7 * 24 * time.Hour, 30 * 24 * time.Hour, 365 * 24 * time.Hour,
}

// Ticks implements plot.Ticker.
func (timeTicks) Ticks(least, most float64) (ticks []plot.Tick) {
	step := tickSteps[len(tickSteps)-1]
	for _, s := range tickSteps {
		if (most-least)/s.Seconds() <= 9 {
			step = s
			break
		}
	}
	form := "15:04:05"
	switch {
	case step >= 24*time.Hour:
		form = "2 Jan 2006"
	case step >= time.Minute:
		form = "2 Jan 15:04"
	case step < time.Second:
		form = "15:04:05.000"
	}
	for v := math.Ceil(least/step.Seconds()) * step.Seconds(); v <= most; v += step.Seconds() {
		ticks = append(ticks, plot.Tick{Value: v, Label: time.UnixMicro(int64(math.Round(v * 1e6))).UTC().Format(form)})
	}
	return ticks
}
