package report_test

import (
	"strings"
	"testing"

	"example.com/sash/internal/bench/report"
)

func figure(rounds ...float64) *report.Figure {
	var f report.Figure
	for _, v := range rounds {
		f.Add(v)
	}
	return &f
}

func TestFigure(t *testing.T) {
	for _, c := range []struct {
		name   string
		figure *report.Figure
		want   string
	}{
		{"nothing measured", figure(), "-"},
		{"the median is not the mean", figure(1, 100, 2), "2.00 (1.00-100)"},
		{"an even number of rounds", figure(10, 20), "15.0 (10.0-20.0)"},
	} {
		if got := c.figure.String(); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// A noisy round doubles both contenders, and does not move their ratio.
func TestRatioComparesWithinRounds(t *testing.T) {
	if got := report.Ratio(figure(1, 20, 1), figure(2, 40, 2)); got != 0.5 {
		t.Errorf("ratio %v, want 0.5", got)
	}
}

func TestMarkdown(t *testing.T) {
	var doc report.Document
	doc.Section("Title", "\nProse.\n")
	doc.Table(&report.Table{Head: []string{"a", "b"}, Rows: [][]string{{"1", "2"}}})
	var b strings.Builder
	if err := doc.WriteMarkdown(&b, true); err != nil {
		t.Fatal(err)
	}
	want := "# Title\n\nProse.\n\n| a | b |\n| --- | ---: |\n| 1 | 2 |\n"
	if b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}
