package rivals

import (
	"fmt"

	"example.com/sash/internal/bench/report"
)

// page adds the tables to the report.
func (r *run) page() error {
	all := report.NewTable("contender", "version", "runtime", worstHead, "in all", "failed")
	for _, c := range r.contenders {
		all.Row(c.name, c.version, c.runtime, c.worst(), c.count.All, c.count.Failed)
	}
	type section struct {
		Title string
		Table report.Table
	}
	var sections []section
	for i, w := range workloads {
		table := report.NewTable("contender", "decisions/s", "p50, µs", "p99, µs", "Redis µs a decision", worstHead)
		for _, c := range r.contenders {
			f, name := c.figures[i], c.name
			if failed := f.Failed.Median(); failed > 0 {
				name += fmt.Sprintf(" (%.1f %% failed)", failed)
			}
			table.Row(name, f.PerSecond, f.P50, f.P99, f.Used[0], c.worst())
		}
		sections = append(sections, section{w.name, table})
	}
	return r.Add(page, map[string]any{
		"Contenders": all, "Workloads": sections, "Missing": r.missing, "Units": exactUnits, "Window": exactWindow,
	})
}

var worstHead = fmt.Sprintf("worst window (limit %d)", exactUnits)

// worst returns the worst window, bold if it has more than the limit, or a dash if it was not searched for.
func (c *contender) worst() string {
	if c.count.All == 0 {
		return "-"
	}
	return c.count.Over(exactUnits)
}
