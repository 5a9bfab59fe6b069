package gobench

import (
	"flag"
	"fmt"
	"io"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/internal/bench/exactness"
	"example.com/sash/internal/bench/report"
)

// Config says how much to measure.
type Config struct {
	Rounds   int           // alternating rounds of every figure
	Window   time.Duration // of the limit whose worst window is looked for
	Progress io.Writer     // told what is being measured
}

// Run measures everything, adds it to the document, and returns the targets.
func Run(cfg Config, doc *report.Document) ([]report.Target, error) {
	testing.Init()
	if err := flag.Set("test.benchtime", "100ms"); err != nil {
		return nil, err
	}
	all := contenders()
	table := &report.Table{Head: []string{"ns a decision"}}
	for _, c := range all {
		table.Head = append(table.Head, c.name)
	}
	allocs := &report.Table{Head: append([]string{"allocations a decision"}, table.Head[1:]...)}
	var targets []report.Target
	for _, l := range loads() {
		fmt.Fprintf(cfg.Progress, "%s go: %s\n", time.Now().Format(time.TimeOnly), l.name)
		times := make([]report.Figure, len(all))
		allocated := make([]report.Figure, len(all))
		for range cfg.Rounds {
			for i, c := range all {
				if !l.fits(c) {
					continue
				}
				r := testing.Benchmark(l.bench(c))
				times[i].Add(float64(r.T.Nanoseconds()) / float64(r.N))
				allocated[i].Add(float64(r.AllocsPerOp()))
			}
		}
		row, allocRow := []any{l.name}, []any{l.name}
		for i, c := range all {
			text, mallocs := times[i].String(), "-"
			if l.fits(c) {
				mallocs = fmt.Sprintf("%.0f", allocated[i].Median())
				if i > 0 {
					text += fmt.Sprintf(", sash × %.2f", report.Ratio(&times[0], &times[i]))
				}
			}
			row, allocRow = append(row, text), append(allocRow, mallocs)
		}
		table.Row(row...)
		allocs.Row(allocRow...)
		targets = append(targets, target(l, all, times, allocated)...)
	}
	doc.Section("Decisions in this process", `
A call of `+"`Limiter.Allow`"+` over memstore, with the whole result (units left, time to retry, of each limit), beside:

- **exact, by hand**: what a service writes for itself, a mutex and a map of slices of times. It answers yes or no only, for one
  limit and a cost of 1, and never forgets a key. The ring log is a floor, the least work that keeps the bound: as many slots as
  units, allocated at once, and a look at the oldest.
- **certmagic's ring buffer**, the one kept Go library found with the bound of a sliding log in this process. It has a goroutine for
  each key, and refuses from Allow while that is not ready, so its Wait is measured.
- for orientation, libraries that do less: a token bucket and GCRA let twice the limit through a window, and so does a fixed
  window.

The figure after "sash ×" is the time of sash divided by that contender's, in the same rounds. Parallel is one goroutine a processor. The
window of "one key" is a millisecond, so it holds thousands of calls; that of "1,000 keys" holds about a hundred for each.`)
	doc.Table(table)
	doc.Table(allocs)
	worst(cfg, all, doc)
	return targets, nil
}

// target compares sash, which comes first, with those that are exact, and counts its allocations.
func target(l load, all []contender, times, allocated []report.Figure) []report.Target {
	targets := []report.Target{{Name: "memstore, allocations, " + l.name, Want: 0, Measured: allocated[0].Median()}}
	for i, c := range all {
		if c.rival && l.fits(c) {
			targets = append(targets, report.Target{
				Name:     fmt.Sprintf("memstore : %s, %s", c.name, l.name),
				Want:     1,
				Measured: report.Ratio(&times[0], &times[i]),
			})
		}
	}
	if !l.parallel {
		return targets
	}
	fastest := -1
	for i, c := range all {
		if c.keyed && (fastest < 0 || times[i].Median() < times[fastest].Median()) {
			fastest = i
		}
	}
	return append(targets, report.Target{
		Name:     fmt.Sprintf("speed of memstore : fastest keyed library (%s), %s", all[fastest].name, l.name),
		Want:     1,
		Least:    true,
		Measured: report.Ratio(&times[fastest], &times[0]),
	})
}

// worst counts what each contender admits in its worst window.
func worst(cfg Config, all []contender, doc *report.Document) {
	limit := sash.Every(1000, cfg.Window)
	table := &report.Table{Head: []string{"contender", fmt.Sprintf("worst window (limit %d)", limit.Units), "in all"}}
	for _, c := range all {
		if c.waits {
			continue
		}
		fmt.Fprintf(cfg.Progress, "%s go: worst window, %s\n", time.Now().Format(time.TimeOnly), c.name)
		l := c.open(limit)
		count := exactness.Run(limit.Window, func() (bool, error) { return l.allow("hot"), nil })
		l.close()
		units := fmt.Sprint(count.Worst)
		if int64(count.Worst) > limit.Units {
			units = "**" + units + "**"
		}
		table.Row(c.name, units, count.All)
	}
	doc.Section("Exactness beside speed, in this process", fmt.Sprintf("As on Redis: a limit of 1,000 in %v, and the worst window that was seen.", cfg.Window))
	doc.Table(table)
}
