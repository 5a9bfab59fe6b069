package report

import (
	"fmt"
	"image/color"
	"io"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// A Plot is curves over a logarithmic axis.
type Plot struct {
	Title, X, Y string
	LogY        bool // the vertical axis is logarithmic, too
	Curves      []Curve
}

// A Curve is the medians of figures.
type Curve struct {
	Name   string
	Ours   bool // drawn thicker, and the others dashed
	points plotter.XYs
}

// Add appends a point.
func (c *Curve) Add(x int, f Figure) {
	c.points = append(c.points, plotter.XY{X: float64(x), Y: f.Median()})
}

// inks differ for readers who cannot tell red from green (Okabe and Ito).
var inks = []color.Color{
	color.RGBA{0, 114, 178, 255}, color.RGBA{213, 94, 0, 255}, color.RGBA{0, 158, 115, 255},
	color.RGBA{204, 121, 167, 255}, color.RGBA{86, 180, 233, 255}, color.RGBA{230, 159, 0, 255},
	color.RGBA{90, 90, 90, 255}, color.Black, color.RGBA{150, 110, 60, 255}, color.RGBA{120, 60, 160, 255},
}

// WriteSVG draws the curves, and their names beside them, where they cover nothing.
func (p Plot) WriteSVG(w io.Writer) error {
	const width, height, beside = 25 * vg.Centimeter, 11 * vg.Centimeter, 9 * vg.Centimeter
	out := plot.New()
	out.Title.Text, out.X.Label.Text, out.Y.Label.Text = p.Title, p.X, p.Y
	out.X.Scale = plot.LogScale{}
	if p.LogY {
		out.Y.Scale, out.Y.Tick.Marker = plot.LogScale{}, plainTicks{}
	} else {
		out.Y.Min = 0
	}
	out.Add(plotter.NewGrid())
	legend := plot.NewLegend()
	legend.Top, legend.Left, legend.YOffs, legend.Padding = true, true, -vg.Centimeter, vg.Points(2)
	var ticks plot.ConstantTicks
	for i, c := range p.Curves {
		line, points, err := plotter.NewLinePoints(slices.DeleteFunc(slices.Clone(c.points), func(at plotter.XY) bool {
			return p.LogY && at.Y <= 0 // it has no place on the axis
		}))
		if err != nil {
			return fmt.Errorf("report: plot %q, %s: %w", p.Title, c.Name, err)
		}
		line.Color, points.Color = inks[i%len(inks)], inks[i%len(inks)]
		points.Shape = plotutil.Shape(i)
		if c.Ours {
			line.Width = vg.Points(2)
		} else {
			line.Dashes = []vg.Length{vg.Points(4), vg.Points(2)}
		}
		out.Add(line, points)
		legend.Add(c.Name, line, points)
		if i == 0 {
			for _, at := range c.points {
				ticks = append(ticks, plot.Tick{Value: at.X, Label: strconv.FormatFloat(at.X, 'f', -1, 64)})
			}
		}
	}
	out.X.Tick.Marker = ticks
	page := vgsvg.New(width, height)
	canvas := draw.New(page)
	canvas.SetColor(color.White)
	canvas.Fill(canvas.Rectangle.Path())
	out.Draw(draw.Crop(canvas, 0, -beside, 0, 0))
	legend.Draw(draw.Crop(canvas, width-beside+vg.Points(8), 0, 0, 0))
	_, err := page.WriteTo(w)
	return err
}

// plainTicks labels powers of ten in full.
type plainTicks struct{}

func (plainTicks) Ticks(low, high float64) []plot.Tick {
	ticks := plot.LogTicks{Prec: -1}.Ticks(low, high)
	for i := range ticks {
		if ticks[i].Label != "" {
			ticks[i].Label = strconv.FormatFloat(ticks[i].Value, 'f', -1, 64)
		}
	}
	return ticks
}
