package report

import (
	"fmt"
	"slices"

	"github.com/montanaflynn/stats"
)

// A Figure is one quantity, measured once in each round.
type Figure []float64

// Add records one round.
func (f *Figure) Add(v float64) { *f = append(*f, v) }

// Median returns the middle round, or NaN without rounds.
func (f Figure) Median() float64 {
	median, _ := stats.Median(stats.Float64Data(f)) // the error repeats the NaN
	return median
}

// String returns "median (lowest-highest)", or a dash without rounds.
func (f Figure) String() string {
	if len(f) == 0 {
		return "-"
	}
	return fmt.Sprintf("%s (%s-%s)", Number(f.Median()), Number(slices.Min(f)), Number(slices.Max(f)))
}

// Number returns v with three significant digits, and as a whole number from 100 on.
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

// Ratio returns a/b as the median of the ratios of the rounds: rounds alternate, so round i of a ran next to
// round i of b.
func Ratio(a, b Figure) float64 {
	var ratios Figure
	for i := range min(len(a), len(b)) {
		if b[i] > 0 {
			ratios.Add(a[i] / b[i])
		}
	}
	return ratios.Median()
}
