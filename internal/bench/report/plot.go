package report

import (
	"fmt"
	"image/color"
	"io"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// A Plot is curves over an axis.
type Plot struct {
	// File is the name of the picture beside the document, "name.svg".
	File        string
	Title       string
	Horizontal  string
	Vertical    string
	Logarithmic bool // up; the horizontal axis always is
	Curves      []Curve
}

// A Curve is figures, one for each place on the horizontal axis.
type Curve struct {
	Name    string
	At      []float64
	Figures []*Figure
	Ours    bool // drawn bolder than what it is compared with
}

// inks are told apart by those who do not see red or green too (Okabe and Ito).
var inks = []color.RGBA{
	{0, 114, 178, 255}, {213, 94, 0, 255}, {0, 158, 115, 255}, {204, 121, 167, 255},
	{86, 180, 233, 255}, {230, 159, 0, 255}, {90, 90, 90, 255}, {0, 0, 0, 255}, {150, 110, 60, 255}, {120, 60, 160, 255},
}

// WriteSVG draws the plot.
func (p *Plot) WriteSVG(w io.Writer) error { return p.write(w, "svg") }

func (p *Plot) write(w io.Writer, format string) error {
	canvas := plot.New()
	canvas.BackgroundColor = color.White
	canvas.Title.Text = p.Title
	canvas.X.Label.Text, canvas.Y.Label.Text = p.Horizontal, p.Vertical
	canvas.X.Scale = plot.LogScale{}
	var ticks plot.ConstantTicks
	for i, c := range p.Curves {
		line, points, err := p.curve(c, i)
		if err != nil {
			return fmt.Errorf("report: %s, %s: %w", p.File, c.Name, err)
		}
		canvas.Add(line, points)
		canvas.Legend.Add(c.Name, line, points)
		if len(ticks) < len(c.At) {
			ticks = nil
			for _, x := range c.At {
				ticks = append(ticks, plot.Tick{Value: x, Label: fmt.Sprintf("%.0f", x)})
			}
		}
	}
	canvas.X.Tick.Marker = ticks
	if p.Logarithmic {
		canvas.Y.Scale = plot.LogScale{}
		canvas.Y.Tick.Marker = plainTicks{}
	} else {
		canvas.Y.Min = 0
	}
	canvas.Add(plotter.NewGrid())
	return p.save(canvas, w, format)
}

// plainTicks writes powers of ten in full.
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

func (p *Plot) curve(c Curve, i int) (*plotter.Line, *plotter.Scatter, error) {
	points := make(plotter.XYs, len(c.At))
	for k, x := range c.At {
		points[k] = plotter.XY{X: x, Y: c.Figures[k].Median()}
	}
	line, scatter, err := plotter.NewLinePoints(points)
	if err != nil {
		return nil, nil, err
	}
	line.Color = inks[i%len(inks)]
	line.Width = vg.Points(1)
	scatter.Color = line.Color
	scatter.Shape = draw.CircleGlyph{}
	scatter.Radius = vg.Points(2)
	if c.Ours {
		line.Width = vg.Points(2)
	} else {
		line.Dashes = []vg.Length{vg.Points(4), vg.Points(2)}
	}
	return line, scatter, nil
}

// save draws the curves, and beside them, where it hides nothing, what they are.
func (p *Plot) save(canvas *plot.Plot, w io.Writer, format string) error {
	const width, height = 25 * vg.Centimeter, 11 * vg.Centimeter
	legend := canvas.Legend
	legend.Top, legend.Left = true, true
	legend.YOffs = -vg.Centimeter
	legend.Padding = vg.Points(2)
	canvas.Legend = plot.NewLegend()
	page, err := draw.NewFormattedCanvas(width, height, format)
	if err != nil {
		return err
	}
	all := draw.New(page)
	all.SetColor(color.White)
	all.Fill(all.Rectangle.Path())
	const beside = 9 * vg.Centimeter
	canvas.Draw(draw.Crop(all, 0, -beside, 0, 0))
	legend.Draw(draw.Crop(all, width-beside+vg.Points(8), 0, 0, 0))
	_, err = page.WriteTo(w)
	return err
}
