package gobench

import (
	_ "embed"
	"flag"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/internal/bench/exactness"
	"example.com/sash/internal/bench/load"
	"example.com/sash/internal/bench/report"
)

//go:embed page.md
var page string

// A scenario is the calls that a limiter receives.
type scenario struct {
	name     string
	limits   []sash.Limit
	keys     int
	parallel bool
	refused  bool // the window is full and stays full
}

// scenarios fill a window as far as the contender's speed goes, and refuse nothing unless they say so.
func scenarios() []scenario {
	short := []sash.Limit{sash.Every(50_000, time.Millisecond)}
	keyed := []sash.Limit{sash.Every(10_000, 20*time.Millisecond)}
	full := []sash.Limit{sash.PerHour(100)}
	return []scenario{
		{name: "admitted, one key", limits: short, keys: 1},
		{name: "admitted, 1,000 keys", limits: keyed, keys: 1000},
		{name: "refused, one key", limits: full, keys: 1, refused: true},
		{name: "admitted, one key, parallel", limits: short, keys: 1, parallel: true},
		{name: "admitted, 1,000 keys, parallel", limits: keyed, keys: 1000, parallel: true},
		{name: "refused, one key, parallel", limits: full, keys: 1, parallel: true, refused: true},
		{name: "two windows, admitted, one key", limits: append(short, sash.Every(100_000, 2*time.Millisecond)), keys: 1},
		{name: "two windows, refused, one key", limits: append(full, sash.PerDay(1000)), keys: 1, refused: true},
	}
}

// fits reports whether a contender can take part.
func (s scenario) fits(c contender) bool {
	return (c.multi || len(s.limits) == 1) && !(s.refused && c.waits)
}

// bench returns the benchmark of one contender.
func (s scenario) bench(c contender) func(b *testing.B) {
	keys := make([]string, s.keys)
	for i := range keys {
		keys[i] = load.Key(i)
	}
	return func(b *testing.B) {
		limiter := c.open(s.limits...)
		defer limiter.stop()
		for _, key := range keys {
			limiter.allow(key)
		}
		for more := s.refused; more; {
			more = limiter.allow(keys[0])
		}
		b.ReportAllocs()
		b.ResetTimer()
		if !s.parallel {
			for i := range b.N {
				limiter.allow(keys[i%len(keys)])
			}
			return
		}
		var workers atomic.Int64
		b.RunParallel(func(pb *testing.PB) {
			for i := int(workers.Add(1)) * len(keys) / 2; pb.Next(); i++ {
				limiter.allow(keys[i%len(keys)])
			}
		})
	}
}

// Run measures everything and adds it to the report.
func Run(r *report.Report) error {
	testing.Init()
	if err := flag.Set("test.benchtime", "100ms"); err != nil {
		return err
	}
	all := contenders()
	names := make([]string, len(all))
	for i, c := range all {
		names[i] = c.name
	}
	times := report.NewTable(append([]string{"ns a decision"}, names...)...)
	allocs := report.NewTable(append([]string{"allocations a decision"}, names...)...)
	for _, s := range scenarios() {
		r.Say("in this process: %s", s.name)
		ns, allocated := make([]report.Figure, len(all)), make([]report.Figure, len(all))
		for range r.Rounds {
			for i, c := range all {
				if s.fits(c) {
					result := testing.Benchmark(s.bench(c))
					ns[i].Add(float64(result.T.Nanoseconds()) / float64(result.N))
					allocated[i].Add(float64(result.AllocsPerOp()))
				}
			}
		}
		timesRow, allocsRow := []any{s.name}, []any{s.name}
		for i, c := range all {
			text, mallocs := ns[i].String(), "-"
			if s.fits(c) {
				mallocs = fmt.Sprintf("%.0f", allocated[i].Median())
				if i > 0 {
					text += fmt.Sprintf(", sash × %.2f", report.Ratio(ns[0], ns[i]))
				}
			}
			timesRow, allocsRow = append(timesRow, text), append(allocsRow, mallocs)
		}
		times.Row(timesRow...)
		allocs.Row(allocsRow...)
		r.AtMost(0, allocated[0].Median(), "memstore, allocations, "+s.name)
		targets(r, s, all, ns)
	}
	return r.Add(page, map[string]any{"Times": times, "Allocations": allocs, "Exact": exact(r, all)})
}

// targets compares sash, which comes first, with its rivals and, in parallel, with the fastest keyed library.
func targets(r *report.Report, s scenario, all []contender, ns []report.Figure) {
	fastest := -1
	for i, c := range all {
		if c.rival && s.fits(c) {
			r.AtMost(1, report.Ratio(ns[0], ns[i]), fmt.Sprintf("memstore : %s, %s", c.name, s.name))
		}
		if c.keyed && (fastest < 0 || ns[i].Median() < ns[fastest].Median()) {
			fastest = i
		}
	}
	if s.parallel {
		r.AtLeast(1, report.Ratio(ns[fastest], ns[0]),
			fmt.Sprintf("speed of memstore : fastest keyed library (%s), %s", all[fastest].name, s.name))
	}
}

// exact counts what each contender admits in its worst window.
func exact(r *report.Report, all []contender) report.Table {
	const units = 1000
	table := report.NewTable("contender", fmt.Sprintf("worst window (limit %d)", units), "in all")
	for _, c := range all {
		if c.waits {
			continue
		}
		r.Say("in this process: worst window, %s", c.name)
		l := c.open(sash.Every(units, r.Window))
		count := exactness.Run(r.Window, func() (bool, error) { return l.allow("hot"), nil })
		l.stop()
		table.Row(c.name, count.Over(units), count.All)
	}
	return table
}
