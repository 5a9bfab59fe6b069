package htmlreport

import (
	"bytes"
	"fmt"
	"html/template"
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Colors that are distinguishable with any kind of color vision (by Okabe and Ito).
var colors = []color.Color{
	color.RGBA{0, 114, 178, 255}, color.RGBA{213, 94, 0, 255}, color.RGBA{0, 158, 115, 255},
	color.RGBA{204, 121, 167, 255}, color.RGBA{230, 159, 0, 255}, color.RGBA{86, 180, 233, 255},
}

var (
	refusalColor = color.RGBA{180, 38, 30, 255}
	limitColor   = color.RGBA{90, 90, 90, 255}
	bandColor    = color.RGBA{255, 236, 179, 255}
	gridColor    = color.RGBA{225, 228, 232, 255}
)

const (
	wide = 24 * vg.Centimeter
	tall = 9 * vg.Centimeter
)

func newPlot() *plot.Plot {
	p := plot.New()
	p.Title.Padding = 4
	for _, text := range []*draw.TextStyle{&p.Title.TextStyle, &p.X.Label.TextStyle, &p.Y.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label, &p.Legend.TextStyle} {
		text.Font = font.Font{Typeface: "Liberation", Variant: "Sans", Size: 10}
	}
	p.Legend.Padding = 3
	return p
}

// svg renders a plot. The label is its text alternative.
func svg(p *plot.Plot, height vg.Length, label string) (template.HTML, error) {
	canvas := vgsvg.New(wide, height)
	p.Draw(draw.New(canvas))
	var all bytes.Buffer
	if _, err := canvas.WriteTo(&all); err != nil {
		return "", err
	}
	// Keep only the element: an HTML page has no XML declaration.
	text := all.Bytes()
	start := bytes.Index(text, []byte("<svg"))
	if start < 0 {
		return "", fmt.Errorf("the plot is not an SVG")
	}
	text = bytes.Replace(text[start:], []byte("<svg"), fmt.Appendf(nil, `<svg role="img" aria-label="%s"`, template.HTMLEscapeString(label)), 1)
	return template.HTML(text), nil
}
