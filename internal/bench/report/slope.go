package report

import (
	"fmt"
	"math"
)

// A Slope is what one more of something changes a figure by: a doubling, or one more key.
type Slope struct {
	Percent    float64 // of the figure's mean over all sizes
	Within     float64 // two standard errors, in the same per cent
	Each       float64 // the same change in the figure's own unit
	EachWithin float64 // two standard errors in that unit
}

// Doubling fits a line through figures at sizes, against the logarithm of the size to base 2.
func Doubling(sizes []int, figures []Figure) Slope {
	logs := make([]float64, len(sizes))
	for i, size := range sizes {
		logs[i] = math.Log2(float64(size))
	}
	return fit(logs, figures)
}

// OneMore fits a line through figures at sizes, against the size.
func OneMore(sizes []int, figures []Figure) Slope {
	x := make([]float64, len(sizes))
	for i, size := range sizes {
		x[i] = float64(size)
	}
	return fit(x, figures)
}

// fit is least squares over all rounds. Each round counts in per cent of its own mean over the sizes, so that a round in
// which the machine was slow for all of them moves nothing.
func fit(x []float64, figures []Figure) Slope {
	rounds, n := len(figures[0]), float64(len(x))
	middle, mean := 0.0, 0.0
	for i := range x {
		middle += x[i] / n
		mean += figures[i].Median() / n
	}
	var squares, products, points float64
	relative := make([][]float64, rounds)
	for round := range rounds {
		sum := 0.0
		for i := range x {
			sum += figures[i][round]
		}
		for i := range x {
			y := 100 * (figures[i][round]*n/sum - 1)
			relative[round] = append(relative[round], y)
			squares += (x[i] - middle) * (x[i] - middle)
			products += (x[i] - middle) * y
			points++
		}
	}
	s := Slope{Percent: products / squares}
	s.Each = s.Percent / 100 * mean
	left := 0.0 // the squares of what the line leaves
	for _, ys := range relative {
		for i, y := range ys {
			off := y - s.Percent*(x[i]-middle)
			left += off * off
		}
	}
	free := points - float64(rounds) - 1 // a mean for each round, and the slope
	s.Within = 2 * math.Sqrt(left/free/squares)
	s.EachWithin = s.Within / 100 * mean
	return s
}

// Flat reports whether zero is within the uncertainty, the slope is below 2 %, and the uncertainty is below 5 %.
func (s Slope) Flat() bool {
	return math.Abs(s.Percent) <= s.Within && math.Abs(s.Percent) < 2 && s.Within < 5
}

// verdict says what the slope means.
func (s Slope) verdict() string {
	switch {
	case s.Flat():
		return "flat"
	case s.Percent > s.Within:
		return "rises"
	case s.Percent < -s.Within:
		return "falls"
	}
	return "unclear"
}

// Slopes is a table of slopes.
type Slopes struct {
	Table
	sizes   []int
	oneMore bool
}

// NewSlopes returns a table of what a doubling of something changes. If a size is a handful of things, such as keys, the
// table also has what one more of them adds, and things names them.
func NewSlopes(of string, sizes []int, things string) Slopes {
	head := []string{"doubling the " + of, "%", "± %", "µs", "± µs", "in short"}
	if things != "" {
		head = append(head, "µs for one more "+things, "± µs for one more")
	}
	return Slopes{NewTable(head...), sizes, things != ""}
}

// Row adds a row for the figures at the sizes.
func (s Slopes) Row(name string, figures []Figure) {
	d := Doubling(s.sizes, figures)
	row := []any{name, fmt.Sprintf("%+.1f", d.Percent), fmt.Sprintf("%.1f", d.Within), fmt.Sprintf("%+.3f", d.Each),
		fmt.Sprintf("%.3f", d.EachWithin), d.verdict()}
	if s.oneMore {
		m := OneMore(s.sizes, figures)
		row = append(row, fmt.Sprintf("%+.3f", m.Each), fmt.Sprintf("%.3f", m.EachWithin))
	}
	s.Table.Row(row...)
}
