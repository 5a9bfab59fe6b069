// Package report holds what was measured and writes it as text and as Markdown.
package report

import (
	"fmt"
	"slices"
)

// A Figure is one quantity measured in several rounds.
type Figure struct {
	rounds []float64
}

// Add records one round.
func (f *Figure) Add(v float64) { f.rounds = append(f.rounds, v) }

// Median returns the middle round, or 0 without rounds.
func (f *Figure) Median() float64 {
	if len(f.rounds) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(f.rounds))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// Min returns the lowest round, or 0 without rounds.
func (f *Figure) Min() float64 {
	if len(f.rounds) == 0 {
		return 0
	}
	return slices.Min(f.rounds)
}

// Max returns the highest round, or 0 without rounds.
func (f *Figure) Max() float64 {
	if len(f.rounds) == 0 {
		return 0
	}
	return slices.Max(f.rounds)
}

// String returns "median (min-max)", or a dash without rounds.
func (f *Figure) String() string {
	if len(f.rounds) == 0 {
		return "-"
	}
	return fmt.Sprintf("%s (%s-%s)", Number(f.Median()), Number(f.Min()), Number(f.Max()))
}

// Number writes three significant digits, and none after the point from 100 on.
func Number(v float64) string {
	switch {
	case v < 1 && v != 0:
		return fmt.Sprintf("%.3g", v)
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// Ratio writes a/b. Rounds alternate, so round i of one was measured next to round i of the other: the
// ratio is the median of the ratios of the rounds.
func Ratio(a, b *Figure) float64 {
	var f Figure
	for i := range min(len(a.rounds), len(b.rounds)) {
		if b.rounds[i] > 0 {
			f.Add(a.rounds[i] / b.rounds[i])
		}
	}
	return f.Median()
}

// A Target is a figure that the project set itself.
type Target struct {
	Name     string
	Want     float64 // at most, or at least
	Least    bool    // the figure is to be Want or more, not less
	Measured float64
}

// Met reports whether the target is reached.
func (t Target) Met() bool {
	if t.Least {
		return t.Measured >= t.Want
	}
	return t.Measured <= t.Want
}
