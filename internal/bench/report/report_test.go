package report_test

import (
	"io"
	"strings"
	"testing"

	"example.com/sash/internal/bench/report"
)

func TestFigure(t *testing.T) {
	for _, c := range []struct {
		name   string
		figure report.Figure
		want   string
	}{
		{"nothing measured", nil, "-"},
		{"the median is not the mean", report.Figure{1, 100, 2}, "2.00 (1.00-100)"},
		{"an even number of rounds", report.Figure{10, 20}, "15.0 (10.0-20.0)"},
	} {
		if got := c.figure.String(); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// A noisy round doubles both contenders and leaves their ratio as it is.
func TestRatioComparesWithinRounds(t *testing.T) {
	if got := report.Ratio(report.Figure{1, 20, 1}, report.Figure{2, 40, 2}); got != 0.5 {
		t.Errorf("ratio %v, want 0.5", got)
	}
}

func TestPage(t *testing.T) {
	r := report.New(report.Config{Rounds: 7}, io.Discard)
	r.AtMost(2, 1, "cost")
	r.AtLeast(2, 1, "speed")
	table := report.NewTable("contender", "units")
	table.Row("x", 10)
	if err := r.Add("\n## Part\n\n{{.Config.Rounds}} rounds.\n\n{{.Table}}\n", map[string]any{"Table": table}); err != nil {
		t.Fatal(err)
	}
	got, err := r.Page("# Title\n\n{{.Targets}}\n", map[string]any{})
	if err != nil {
		t.Fatal(err)
	}
	want := `# Title

| target | wanted | measured | met |
|:------ | ------:| --------:| ---:|
| cost   |    ≤ 2 |     1.00 | yes |
| speed  |    ≥ 2 |     1.00 |  no |

## Part

7 rounds.

| contender | units |
|:--------- | -----:|
| x         |    10 |
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if err := r.Add("{{.Absent}}", map[string]any{}); err == nil {
		t.Error("a page without one of its tables is no error")
	}
}

func TestPlotNamesItsCurves(t *testing.T) {
	plot := report.Plot{Title: "speed", X: "goroutines", Y: "decisions a second", LogY: true}
	for i, name := range []string{"ours", "theirs"} {
		curve := report.Curve{Name: name, Ours: i == 0}
		curve.Add(1, report.Figure{10})
		curve.Add(8, report.Figure{20})
		plot.Curves = append(plot.Curves, curve)
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
