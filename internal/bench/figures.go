package main

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A figure is one measurement in each round.
type figure []float64

func (f figure) median() float64 {
	if len(f) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(f))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// String is the median, with the lowest and the highest round.
func (f figure) String() string {
	if len(f) == 0 {
		return "-"
	}
	return fmt.Sprintf("%s (%s–%s)", short(f.median()), short(slices.Min(f)), short(slices.Max(f)))
}

// short formats a number with three digits, or whole above that.
func short(v float64) string {
	digits := 0
	if v != 0 {
		digits = max(0, 2-int(math.Floor(math.Log10(math.Abs(v)))))
	}
	return strconv.FormatFloat(v, 'f', min(digits, 4), 64)
}

// A table is one of the page, by name. The first of a part has its versions.
type table struct {
	name     string
	versions []string
	head     []string
	rows     [][]string
}

func (t *table) row(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		if v, ok := c.(float64); ok {
			c = short(v)
		}
		row[i] = fmt.Sprint(c)
	}
	t.rows = append(t.rows, row)
}

// String is Markdown: when it was measured and with what, if it has versions, and the rows.
func (t table) String() string {
	var b strings.Builder
	if t.versions != nil {
		about := append([]string{time.Now().Format("2 January 2006"), fmt.Sprintf("%d processors", runtime.NumCPU()), runtime.Version()}, t.versions...)
		fmt.Fprintf(&b, "%s.\n\n", strings.Join(about, ", "))
	}
	fmt.Fprintf(&b, "| %s |\n|%s\n", strings.Join(t.head, " | "), " --- |"+strings.Repeat(" ---: |", len(t.head)-1))
	for _, row := range t.rows {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
	}
	return b.String()
}

// replaceTables returns a page with tables in the place of those of the same names, which stand between the comments
// "<!-- table: NAME -->" and "<!-- end -->".
func replaceTables(page string, tables []table) (string, error) {
	for _, t := range tables {
		mark := "<!-- table: " + t.name + " -->\n"
		before, rest, ok := strings.Cut(page, mark)
		_, after, ended := strings.Cut(rest, "<!-- end -->")
		if !ok || !ended {
			return page, fmt.Errorf("the page has no place for the table %q", t.name)
		}
		page = before + mark + "\n" + t.String() + "\n<!-- end -->" + after
	}
	return page, nil
}

// alternate measures each of n contenders once per round, beginning with another one each time.
func (b *bench) alternate(n int, measure func(i int) error) error {
	for round := range b.rounds {
		for i := range n {
			if err := b.ctx.Err(); err != nil {
				return err
			}
			if err := measure((i + round) % n); err != nil {
				return err
			}
		}
	}
	return nil
}
