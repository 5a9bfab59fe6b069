package netbench

import (
	"fmt"
	"slices"

	"example.com/sash/internal/bench/report"
)

// write adds the tables and the plots to the document.
func (r *run) write() {
	r.doc.Section("Decisions on Redis, from a Go program", fmt.Sprintf(`
One redis-server and one program share the machine's two processors, so that work which either saves is speed for both. Each figure is the median
of %d rounds of %v, in brackets the lowest and the highest; the contenders take turns within a round. Everybody starts from an empty
server with connections of its own.

- **Sash**: `+"`Limiter.AllowN`"+` over goredisstore or rueidisstore, *plain*, or with one decorator before it. The hot key below its limit has
  20,000,000 units a second, which is more than anybody uses, counted in steps of 10 ms; everything else is the log with an entry a call.
  Leases last a hundredth of the shortest window.
- **Rivals**: over go-redis with its default pool and MaxRetries -1, as Sash's. redis_rate and throttled are GCRA (throttled by compare and swap,
  which gives up after ten tries), ulule/limiter is a fixed window; all three admit up to twice the limit. The sorted set is the script
  internal/bench/redisbench/sortedset.lua. For two windows a rival is asked twice, one after the other.
- *Automatic pipelining* is go-redis's AutoPipeline, which it calls experimental. redis_rate over it shows what is the client's doing.
- **decisions/s** counts answers; *failed* calls are no answers. **p50, p99** in µs, of every slow call and one quick call in eight. **Redis µs** is processor time of the whole server
  (INFO cpu), the connections' too. **Allocations** are of the whole program, the client's too.`, r.Rounds, r.Long))
	for _, s := range everything {
		r.doc.Section(fmt.Sprintf("On Redis: %s, %d goroutines", s.name, many), "")
		r.doc.Table(r.table(s, many, r.all()))
	}
	r.writeExact()
	r.writeSweep("On Redis: throughput against goroutines, many keys", uniform, r.bare(), "throughput-many-keys.svg")
	r.writeSweep("On Redis: throughput against goroutines, hot key", hot, r.sweepers(), "throughput-hot-key.svg")
	r.writeClients()
	r.writeAdded()
}

func (r *run) table(s scenario, n int, all []contender) *report.Table {
	table := &report.Table{Head: []string{"contender", "decisions/s", "p50, µs", "p99, µs", "Redis µs a decision", "allocations"}}
	for _, c := range all {
		got := r.cells[at{c.name, s.name, n}]
		name := c.name
		if f := got.failed.Median(); f >= 0.05 {
			name += fmt.Sprintf(" (%.1f %% failed)", f)
		}
		table.Row(name, &got.perSecond, &got.p50, &got.p99, &got.server, fmt.Sprintf("%.1f", got.allocs.Median()))
	}
	return table
}

func (r *run) writeSweep(title string, s scenario, all []contender, file string) {
	r.doc.Section(title, s.name+"; decisions a second.")
	table := &report.Table{Head: []string{"goroutines"}}
	for _, n := range goroutines {
		table.Head = append(table.Head, fmt.Sprint(n))
	}
	plot := &report.Plot{File: file, Title: s.name, Horizontal: "goroutines", Vertical: "decisions a second", Logarithmic: true}
	for _, c := range all {
		row := []any{c.name}
		curve := report.Curve{Name: c.name, Ours: c.ours}
		for _, n := range goroutines {
			figure := &r.cells[at{c.name, s.name, n}].perSecond
			row = append(row, figure)
			curve.At = append(curve.At, float64(n))
			curve.Figures = append(curve.Figures, figure)
		}
		table.Row(row...)
		plot.Curves = append(plot.Curves, curve)
	}
	r.doc.Plot(plot)
	r.doc.Table(table)
}

func (r *run) writeExact() {
	r.doc.Section("Exactness beside speed", fmt.Sprintf(`
The worst window, for a limit of %d in %v: every contender meets one call, silence until shortly before a window later, and then eight goroutines
that do not stop for another one and a half (internal/bench/exactness). Counted are the admissions that surely happened within one window, in a run of its own. In all is
what the whole run of 2.4 windows admitted; with an exact window that is 1 and what two bursts give at most. Bytes are the MEMORY USAGE of all keys
for each admitted call, at 1,000 calls on each of 50 keys from %d goroutines.`, exactUnits, r.Window, many))
	table := &report.Table{Head: []string{"contender", fmt.Sprintf("worst window (limit %d)", exactUnits), "in all", "failed", "bytes an admitted call", "many keys, decisions/s", "hot key, decisions/s", "over the limit, decisions/s"}}
	for _, c := range r.all() {
		count := r.counts[c.name]
		worst := fmt.Sprint(count.Worst)
		if count.Worst > exactUnits {
			worst = "**" + worst + "**"
		}
		row := []any{c.name, worst, count.All, count.Errs, fmt.Sprintf("%.2f", r.bytes[c.name])}
		for _, s := range []scenario{uniform, hot, refused} {
			row = append(row, fmt.Sprintf("%.0f", r.cells[at{c.name, s.name, many}].perSecond.Median()))
		}
		table.Row(row...)
	}
	r.doc.Table(table)
}

// writeClients compares the ways to reach Redis, which docs/decisions/0012 draws on.
func (r *run) writeClients() {
	r.doc.Section("Clients", "Sash plain, "+uniform.name+": the same decisions through go-redis and its automatic pipelining, and rueidis with its default of four connections and with one.")
	table := &report.Table{Head: []string{"client, goroutines", "decisions/s", "p50, µs", "p99, µs", "Redis µs a decision", "allocations", "to go-redis"}}
	for _, n := range goroutines {
		base := r.cells[at{r.plain[0].name, uniform.name, n}]
		for _, c := range append(slices.Clone(r.plain), r.pipelined...) {
			got := r.cells[at{c.name, uniform.name, n}]
			table.Row(fmt.Sprintf("%s, %d", c.name, n), &got.perSecond, &got.p50, &got.p99, &got.server,
				fmt.Sprintf("%.1f", got.allocs.Median()), fmt.Sprintf("× %.2f", report.Ratio(&got.perSecond, &base.perSecond)))
		}
	}
	r.doc.Table(table)
}

func (r *run) writeAdded() {
	r.doc.Section("What Sash adds to a call", `
One goroutine on one key, beside the client's own EVALSHA of a script that returns a constant, with a key, an argument and an answer of the same
length. What is added is the script's work, and in Go the request and the result.`)
	r.doc.Table(r.table(single, 1, append(emptyCalls(), r.plain...)))
}

// over is the ratio of two contenders in one scenario, within the rounds.
func (r *run) over(s scenario, n int, ours, theirs contender) float64 {
	return report.Ratio(&r.cells[at{ours.name, s.name, n}].perSecond, &r.cells[at{theirs.name, s.name, n}].perSecond)
}

// best is the one with the highest median.
func (r *run) best(s scenario, n int, all ...contender) contender {
	return slices.MaxFunc(all, func(a, b contender) int {
		x, y := r.cells[at{a.name, s.name, n}].perSecond.Median(), r.cells[at{b.name, s.name, n}].perSecond.Median()
		if x < y {
			return -1
		}
		return 1
	})
}

// targets are the ratios that the project set itself.
func (r *run) targets() (all []report.Target) {
	ratio := func(what string, want float64, s scenario, ours ...contender) {
		us, rival := r.best(s, many, ours...), r.best(s, many, r.rivals...)
		all = append(all, report.Target{
			Name:     fmt.Sprintf("%s, %d goroutines: %s : best rival (%s)", what, many, us.name, rival.name),
			Want:     want,
			Least:    true,
			Measured: r.over(s, many, us, rival),
		})
	}
	denied, coalesced, leased := r.layered[0:2], r.layered[2:4], r.layered[4:6]
	plain := slices.Concat(r.plain, r.pipelined)
	ratio("many keys", 1.5, uniform, plain...)
	us := r.best(uniform, many, plain...)
	all = append(all, report.Target{
		Name:  fmt.Sprintf("many keys, %d goroutines: %s : %s", many, us.name, r.lifted.name),
		Want:  1,
		Least: true, Measured: r.over(uniform, many, us, r.lifted),
	})
	ratio("hot key below the limit, group commit", 6, hot, coalesced...)
	all = append(all, report.Target{
		Name:  fmt.Sprintf("hot key below the limit, %d goroutines: group commit : its own plain path, go-redis", many),
		Want:  6,
		Least: true, Measured: r.over(hot, many, coalesced[0], r.plain[0]),
	})
	ratio("hot key below the limit, leases", 50, hot, leased...)
	ratio("hot key over the limit, denial cache", 100, refused, denied...)
	for i, e := range emptyCalls() {
		all = append(all, report.Target{
			Name:     fmt.Sprintf("one goroutine, one key: median time of %s : %s", r.plain[i].name, e.name),
			Want:     1.15,
			Measured: report.Ratio(&r.cells[at{r.plain[i].name, single.name, 1}].p50, &r.cells[at{e.name, single.name, 1}].p50),
		})
	}
	most := 0
	for _, c := range r.ours() {
		most = max(most, r.counts[c.name].Worst)
	}
	return append(all, report.Target{
		Name:     fmt.Sprintf("units in the worst window of %d, Sash in every form", exactUnits),
		Want:     exactUnits,
		Measured: float64(most),
	})
}
