package netbench

import (
	"cmp"
	_ "embed"
	"fmt"
	"slices"

	"example.com/sash/internal/bench/load"
	"example.com/sash/internal/bench/report"
)

//go:embed page.md
var page string

// A section is a table of the page, and its title.
type section struct {
	Title string
	Table report.Table
}

// page adds the tables and the plots to the report.
func (r *run) page() error {
	var sections []section
	for _, s := range scenarios {
		sections = append(sections, section{s.name, r.table(s, many, r.limiters())})
	}
	manyKeys, err := r.sweep(uniform, r.bare(), "throughput-many-keys.svg")
	if err != nil {
		return err
	}
	hotKey, err := r.sweep(hot, r.lineup.hot(), "throughput-hot-key.svg")
	if err != nil {
		return err
	}
	return r.Add(page, map[string]any{
		"Goroutines": many, "Scenarios": sections,
		"Units": exactUnits, "Exact": r.exactness(),
		"ManyKeys": manyKeys, "HotKey": hotKey,
		"Clients": r.clients(),
		"Added":   r.table(single, 1, append(r.empty, r.plain...)),
	})
}

// columns are the same in every table of contenders.
var columns = []string{"decisions/s", "p50, µs", "p99, µs", "Redis µs a decision", "allocations"}

func cells(f *load.Figures) []any {
	return []any{f.PerSecond, f.P50, f.P99, f.Used[0], fmt.Sprintf("%.1f", f.Allocs.Median())}
}

func (r *run) table(s scenario, n int, all []contender) report.Table {
	table := report.NewTable(append([]string{"contender"}, columns...)...)
	for _, c := range all {
		f, name := r.at(c, s, n), c.name
		if failed := f.Failed.Median(); failed >= 0.05 {
			name += fmt.Sprintf(" (%.1f %% failed)", failed)
		}
		table.Row(append([]any{name}, cells(f)...)...)
	}
	return table
}

// sweep shows decisions a second against goroutines.
func (r *run) sweep(s scenario, all []contender, file string) (report.Table, error) {
	head := []string{"goroutines"}
	for _, n := range goroutines {
		head = append(head, fmt.Sprint(n))
	}
	table := report.NewTable(head...)
	plot := report.Plot{Title: s.name, X: "goroutines", Y: "decisions a second", LogY: true}
	for _, c := range all {
		row, curve := []any{c.name}, report.Curve{Name: c.name, Ours: c.ours}
		for _, n := range goroutines {
			figure := r.at(c, s, n).PerSecond
			row = append(row, figure)
			curve.Add(n, figure)
		}
		table.Row(row...)
		plot.Curves = append(plot.Curves, curve)
	}
	return table, r.Plot(file, plot)
}

func (r *run) exactness() report.Table {
	table := report.NewTable("contender", fmt.Sprintf("worst window (limit %d)", exactUnits), "in all", "failed", "bytes an admitted call",
		"many keys, decisions/s", "hot key, decisions/s", "over the limit, decisions/s")
	for _, c := range r.limiters() {
		count := r.counts[c.name]
		row := []any{c.name, count.Over(exactUnits), count.All, count.Failed, fmt.Sprintf("%.2f", r.bytes[c.name])}
		for _, s := range []scenario{uniform, hot, refused} {
			row = append(row, fmt.Sprintf("%.0f", r.at(c, s, many).PerSecond.Median()))
		}
		table.Row(row...)
	}
	return table
}

// clients compares the ways to reach Redis, for docs/decisions/0015.
func (r *run) clients() report.Table {
	table := report.NewTable(append(append([]string{"client, goroutines"}, columns...), "to go-redis")...)
	for _, n := range goroutines {
		base := r.at(r.plain[0], uniform, n)
		for _, c := range slices.Concat(r.plain, r.pipelined) {
			f := r.at(c, uniform, n)
			row := append([]any{fmt.Sprintf("%s, %d", c.name, n)}, cells(f)...)
			table.Row(append(row, fmt.Sprintf("× %.2f", report.Ratio(f.PerSecond, base.PerSecond)))...)
		}
	}
	return table
}

// targets compares this run with the ratios that the project aims at.
func (r *run) targets() {
	over := func(s scenario, ours, theirs contender) float64 {
		return report.Ratio(r.at(ours, s, many).PerSecond, r.at(theirs, s, many).PerSecond)
	}
	best := func(s scenario, all []contender) contender {
		return slices.MaxFunc(all, func(a, b contender) int {
			return cmp.Compare(r.at(a, s, many).PerSecond.Median(), r.at(b, s, many).PerSecond.Median())
		})
	}
	overBest := func(what string, want float64, s scenario, ours []contender) {
		us, rival := best(s, ours), best(s, r.rivals)
		r.AtLeast(want, over(s, us, rival), fmt.Sprintf("%s, %d goroutines: %s : best rival (%s)", what, many, us.name, rival.name))
	}
	overLifted := func(what string, want float64, ours []contender) {
		us := best(uniform, ours)
		r.AtLeast(want, over(uniform, us, r.lifted), fmt.Sprintf("%s, %d goroutines: %s : %s", what, many, us.name, r.lifted.name))
	}
	plain := slices.Concat(r.plain, r.pipelined)
	overBest("many keys", 1.5, uniform, plain)
	overLifted("many keys", 1, plain)
	overBest("many keys, decided together", 2, uniform, r.coalescing)
	overLifted("many keys, decided together", 1.5, r.coalescing)
	overBest("hot key below the limit, group commit", 6, hot, r.coalescing)
	r.AtLeast(6, over(hot, r.coalescing[0], r.plain[0]),
		fmt.Sprintf("hot key below the limit, %d goroutines: group commit : its own plain path, go-redis", many))
	overBest("hot key below the limit, leases", 50, hot, r.leasing)
	overBest("hot key over the limit, denial cache", 100, refused, r.denying)
	for i, e := range r.empty {
		ours := r.plain[i]
		r.AtMost(1.15, report.Ratio(r.at(ours, single, 1).P50, r.at(e, single, 1).P50),
			fmt.Sprintf("one goroutine, one key: median time of %s : %s", ours.name, e.name))
	}
	worst := 0
	for _, c := range r.ours() {
		worst = max(worst, r.counts[c.name].Worst)
	}
	r.AtMost(exactUnits, float64(worst), fmt.Sprintf("units in the worst window of %d, Sash in every form", exactUnits))
}
