package netbench

import (
	"fmt"

	"example.com/sash"
	"example.com/sash/internal/bench/load"
	"example.com/sash/internal/bench/report"
	"example.com/sash/internal/bench/server"
)

// fewSubjects is the size that all others are compared with. It is no part of the slope.
const fewSubjects = 1000

// A population is subjects on a Redis of their own.
type population struct {
	n      int
	server *server.Server
	opened *opened
	bytes  float64 // of Redis's memory
}

// subjects measures Redis as subjects double three times, up to the configured number.
func subjects(r *report.Report, data map[string]any) error {
	sizes := []int{fewSubjects, r.Keys / 8, r.Keys / 4, r.Keys / 2, r.Keys}
	var all []population
	for _, n := range sizes {
		r.Say("%d subjects on Redis", n)
		p, err := populate(n)
		if err != nil {
			return err
		}
		defer p.end()
		r.Redis = p.server.Version
		all = append(all, p)
	}
	figures, err := load.Alternate(r.ClientRounds, func(round int) (runs []load.Run) {
		r.Say("decisions on them, round %d of %d", round+1, r.ClientRounds)
		for _, p := range all {
			runs = append(runs, load.Run{Decide: load.Admitting(p.opened.decide), Keys: load.Keys(p.n, 0, uint64(round)), Goroutines: many,
				Duration: r.Turn, Meters: metersOf(p.server)})
		}
		return runs
	})
	if err != nil {
		return err
	}
	table := report.NewTable("subjects", "MiB", "bytes a subject", "script µs a decision", "Redis µs a decision", "client µs a decision", "decisions/s")
	for i, p := range all {
		table.Row(append(append([]any{p.n, fmt.Sprintf("%.1f", p.bytes/(1<<20)), fmt.Sprintf("%.0f", p.bytes/float64(p.n))},
			figuresOf(figures[i])...), figures[i].PerSecond)...)
	}
	data["Subjects"], data["SubjectSlopes"] = table, slopesOf("subjects", sizes[1:], "", figures[1:])
	r.AtMost(2, report.Ratio(figures[4].Used[scriptTime], figures[0].Used[scriptTime]),
		fmt.Sprintf("script time of a decision at %d subjects : at %d", r.Keys, fewSubjects))
	return nil
}

// populate starts a Redis and makes a call on each of n subjects.
func populate(n int) (p population, err error) {
	p.n = n
	if p.server, err = server.Start(); err != nil {
		return p, err
	}
	defer func() {
		if err != nil {
			p.end()
		}
	}()
	if p.opened, err = sashOver("plain", singleRueidis)[0].open(p.server.Addr, costing(1, sash.PerHour(1000))); err != nil {
		return p, err
	}
	before, err := p.server.UsedMemory()
	if err != nil {
		return p, err
	}
	if admitted, err := p.opened.spread(n, n); err != nil || admitted != int64(n) {
		return p, fmt.Errorf("netbench: %d of %d subjects admitted: %w", admitted, n, err)
	}
	after, err := p.server.UsedMemory()
	p.bytes = after - before
	return p, err
}

// end closes the client and stops the server.
func (p *population) end() {
	if p.opened != nil {
		p.opened.close()
	}
	p.server.Stop()
}
