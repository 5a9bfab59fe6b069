package report_test

import (
	"strings"
	"testing"

	"example.com/sash/internal/bench/report"
)

func TestPlotNamesItsCurves(t *testing.T) {
	plot := &report.Plot{
		File: "speed.svg", Title: "speed", Horizontal: "goroutines", Vertical: "decisions a second", Logarithmic: true,
		Curves: []report.Curve{
			{Name: "ours", Ours: true, At: []float64{1, 8}, Figures: []*report.Figure{figure(10), figure(80)}},
			{Name: "theirs", At: []float64{1, 8}, Figures: []*report.Figure{figure(10), figure(20)}},
		},
	}
	var b strings.Builder
	if err := plot.WriteSVG(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<svg", ">ours<", ">theirs<", ">goroutines<"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the picture has no %s", want)
		}
	}
}
