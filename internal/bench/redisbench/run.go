package redisbench

import (
	"fmt"
	"io"
	"time"

	"example.com/sash"
	"example.com/sash/internal/bench/report"
)

// Config says how much to measure.
type Config struct {
	Rounds   int       // alternating rounds of every figure
	Calls    int       // decisions a round
	Progress io.Writer // told what is being measured
}

// Run measures everything, adds it to the document, and returns the targets and the server's version.
func Run(cfg Config, doc *report.Document) (targets []report.Target, version string, err error) {
	s, err := start()
	if err != nil {
		return nil, "", err
	}
	defer s.stop()
	if version, err = s.version(); err != nil {
		return nil, "", err
	}
	r := &run{Config: cfg, server: s, doc: doc}
	r.empty, r.hand, r.compact, r.others = contenders()
	for _, part := range []func() error{r.single, r.double, r.flat, r.slow, r.bytes} {
		if err := part(); err != nil {
			return nil, "", err
		}
	}
	return r.targets, version, nil
}

type run struct {
	Config
	server               *server
	doc                  *report.Document
	empty, hand, compact contender
	others               []contender
	targets              []report.Target
}

func (r *run) say(format string, args ...any) {
	fmt.Fprintf(r.Progress, "%s redis: %s\n", time.Now().Format(time.TimeOnly), fmt.Sprintf(format, args...))
}

func (r *run) target(name string, want, measured float64) {
	r.targets = append(r.targets, report.Target{Name: name, Want: want, Measured: measured})
}

// single is one window: every algorithm under every load.
func (r *run) single() error {
	all := append([]contender{r.empty, r.hand, r.compact}, r.others...)
	exact := all[:5] // those in whose window one call leaves as one comes
	table := &report.Table{Head: []string{"µs of server time a decision"}}
	for _, c := range all {
		table.Head = append(table.Head, c.name)
	}
	for _, m := range []struct {
		load  load
		calls int
		who   []contender
		want  float64
	}{
		{withRoom(1), r.Calls, all, 0.75},
		{fresh(r.Calls), r.Calls, all, 0.75},
		{leaving(300, 1), r.Calls, exact, 0.75},
		{refused(1), r.Calls, all, 0},
		{withRoom(100), min(r.Calls, 900), all, 0.15},
		{leaving(300, 100), r.Calls / 4, exact, 0.15},
	} {
		name := fmt.Sprintf("cost %d, %s", m.load.jobs(time.Microsecond)[0].cost, m.load.name)
		r.say("%s", name)
		cells, err := r.server.rounds(r.Rounds, m.calls, m.load, m.who...)
		if err != nil {
			return err
		}
		row := []any{name}
		for i := range all {
			if i >= len(cells) {
				row = append(row, "-")
				continue
			}
			text := cells[i].time.String()
			if i > 1 {
				text += fmt.Sprintf(", × %.2f", report.Ratio(&cells[i].time, &cells[1].time))
			}
			if share := cells[i].share.Median(); m.load.adapts && i > 0 && share < 99.5 {
				text += fmt.Sprintf(", %.0f %% admitted", share)
			}
			row = append(row, text)
		}
		table.Row(row...)
		if m.want > 0 {
			r.target("compact log : sorted set by hand, "+name, m.want, report.Ratio(&cells[2].time, &cells[1].time))
		}
	}
	r.doc.Section("Server time of a decision, one window", fmt.Sprintf(`
`+"`usec`"+` of EVALSHA in Redis's own INFO commandstats, reset before each round; %d calls a round, pipelined from one connection, 64 at a time, so that
the server is busy. Requests are the bytes that redisstore sends. The baseline is the sorted-set script as the field writes it: TIME,
ZREMRANGEBYSCORE, ZCARD, a ZADD for each unit, PEXPIRE, and the oldest member by ZRANGE on a refusal
(internal/bench/redisbench/sortedset.lua). Median (lowest-highest) over %d rounds. The figure after × is the ratio to the sorted set by hand under the
same load.

- **with room**: one key, from nothing on, far from its limit. The log grows as it does in use.
- **ten calls a key**: many keys, as for client addresses.
- **one leaves as one comes**: the window holds about as many calls all the time. It is cut to the contender's own speed.
- **refused**: a window that is full and that nothing leaves.
- **cost 100**: each call asks for 100 units, which the sorted set keeps as 100 members.`, r.Calls, r.Rounds))
	r.doc.Table(table)
	return nil
}

// double is two windows on one subject: one call against two.
func (r *run) double() error {
	table := &report.Table{Head: []string{"µs of server time a decision", r.hand.name + ", two calls", r.compact.name + ", one call", "ratio", "sorted-set log, one call"}}
	for _, l := range []load{twoLeaving(300, 3000), twoWithRoom()} {
		r.say("%s", l.name)
		cells, err := r.server.rounds(r.Rounds, r.Calls, l, r.hand, r.compact, r.others[0])
		if err != nil {
			return err
		}
		ratio := report.Ratio(&cells[1].time, &cells[0].time)
		table.Row(l.name, &cells[0].time, &cells[1].time, fmt.Sprintf("%.2f", ratio), &cells[2].time)
		r.target("compact log : two sorted-set calls, "+l.name, 0.6, ratio)
	}
	r.doc.Section("Server time of a decision, two windows on one subject", `
The sorted set needs a call for each window, and charges the first even when the second refuses. The compact log decides over
both at once.`)
	r.doc.Table(table)
	return nil
}

// flat is the same call over windows that hold more and more.
func (r *run) flat() error {
	sizes := []int{10, 100, 1000, 10_000, 100_000}
	table := &report.Table{Head: []string{"calls in the window", r.compact.name + ", µs", "to 10", r.hand.name + ", µs", "to 10", "ratio"}}
	cells := make([][]cell, len(sizes))
	for i := range cells {
		cells[i] = make([]cell, 2)
	}
	// The sizes alternate within a round, so that their ratios are of neighbours too.
	for round := range r.Rounds {
		r.say("10 to 100,000 calls in the window, round %d", round+1)
		for i, n := range sizes {
			for k, c := range []contender{r.compact, r.hand} {
				t, err := r.server.round(c, holding(n), r.Calls)
				if err != nil {
					return err
				}
				cells[i][k].time.Add(t.micros)
				cells[i][k].share.Add(t.share())
			}
		}
	}
	most := 0.0
	plot := &report.Plot{File: "cost-against-entries.svg", Title: "server time of a decision against calls in the window",
		Horizontal: "calls in the window", Vertical: "µs of server time", Curves: []report.Curve{
			{Name: r.compact.name, Ours: true}, {Name: r.hand.name},
		}}
	for i, n := range sizes {
		for k := range plot.Curves {
			curve := &plot.Curves[k]
			curve.At, curve.Figures = append(curve.At, float64(n)), append(curve.Figures, &cells[i][k].time)
		}
		ratio := report.Ratio(&cells[i][0].time, &cells[0][0].time)
		most = max(most, ratio)
		table.Row(n, &cells[i][0].time, fmt.Sprintf("%.2f", ratio),
			&cells[i][1].time, fmt.Sprintf("%.2f", report.Ratio(&cells[i][1].time, &cells[0][1].time)),
			fmt.Sprintf("%.2f", report.Ratio(&cells[i][0].time, &cells[i][1].time)))
	}
	r.target("compact log, dearest of 10 to 100,000 calls in the window : 10 calls", 1.3, most)
	r.doc.Section("Server time against calls in the window", `
Filled before, and then as many leave as come. Below 1,000 calls the load is spread over several keys, so that the window
is not shorter than a millisecond.`)
	r.doc.Plot(plot)
	r.doc.Table(table)
	return nil
}

// slow is the slowest single call.
func (r *run) slow() error {
	table := &report.Table{Head: []string{"µs of the slowest single call", r.compact.name, r.hand.name}}
	rounds := min(3, r.Rounds)
	hour := sash.Every(sash.MaxEntries-1, time.Hour)
	for _, m := range []struct {
		name    string
		measure func(contender) (float64, error)
		target  bool
	}{
		{"while filling from 0 to 100,000", r.server.slowestWhileFilling, true},
		{"first after a burst of 100,000 left, one window", func(c contender) (float64, error) { return r.server.afterBurst(c) }, true},
		{"first after it left the shorter of two windows", func(c contender) (float64, error) { return r.server.afterBurst(c, hour) }, true},
	} {
		r.say("slowest call %s", m.name)
		var figures [2]report.Figure
		for range rounds {
			for i, c := range []contender{r.compact, r.hand} {
				micros, err := m.measure(c)
				if err != nil {
					return err
				}
				figures[i].Add(micros)
			}
		}
		table.Row(m.name, &figures[0], &figures[1])
		r.target("compact log, µs of the slowest call "+m.name+" (lowest round)", 1000, figures[0].Min())
	}
	r.doc.Section("The slowest single call", fmt.Sprintf(`
From the server's slow log, median (lowest-highest) of %d rounds. What the system took from the server counts too, so the lowest
round is the script's own.`, rounds))
	r.doc.Table(table)
	return nil
}

// bytes is memory.
func (r *run) bytes() error {
	table := &report.Table{Head: []string{"bytes an admitted call", r.compact.name + ", limit = calls", r.compact.name + ", limit 100,000", r.hand.name, "sorted set : compact"}}
	for _, n := range []int{10, 100, 1000, 10_000, 100_000} {
		r.say("memory of %d calls", n)
		tight, err := r.server.memory(r.compact, n, int64(n))
		if err != nil {
			return err
		}
		wide, err := r.server.memory(r.compact, n, sash.MaxEntries)
		if err != nil {
			return err
		}
		hand, err := r.server.memory(r.hand, n, sash.MaxEntries)
		if err != nil {
			return err
		}
		table.Row(n, fmt.Sprintf("%.1f", tight), fmt.Sprintf("%.1f", wide), fmt.Sprintf("%.1f", hand), fmt.Sprintf("%.1f", hand/tight))
		if n == 1000 || n == 100_000 {
			r.target(fmt.Sprintf("compact log, bytes an admitted call at %d calls, limit equal to the calls", n), 16, tight)
			r.target(fmt.Sprintf("compact log, bytes an admitted call at %d calls, limit 100,000", n), 16, wide)
		}
	}
	r.doc.Section("Memory", `
MEMORY USAGE of the key, with everything that Redis keeps for it, divided by the calls in the window, each of cost 1. The ring
of the compact log grows in steps up to the limit: it is full when the limit equals the calls, and has free slots when the
limit is larger.`)
	r.doc.Table(table)
	return nil
}
