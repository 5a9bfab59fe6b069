package netbench

import (
	_ "embed"
	"fmt"

	"example.com/sash"
	"example.com/sash/internal/bench/load"
	"example.com/sash/internal/bench/report"
	"example.com/sash/internal/bench/server"
)

//go:embed scale.md
var scalePage string

// Scale measures Redis as subjects grow from a thousand to the configured number, and adds it to the report.
func Scale(r *report.Report) error {
	s, err := server.Start()
	if err != nil {
		return err
	}
	defer s.Stop()
	r.Redis = s.Version
	table := report.NewTable("subjects", "MiB", "bytes a subject", "script µs a decision", "Redis µs a decision", "decisions/s")
	var least, most report.Figure
	for n := 1000; n <= r.Keys; n *= 10 {
		r.Say("%d subjects on Redis", n)
		bytes, f, err := subjects(r, s, n)
		if err != nil {
			return err
		}
		most = f.Used[0]
		if n == 1000 {
			least = most
		}
		table.Row(n, fmt.Sprintf("%.1f", bytes/(1<<20)), fmt.Sprintf("%.0f", bytes/float64(n)), f.Used[0], f.Used[1], f.PerSecond)
	}
	r.AtMost(2, most.Median()/least.Median(), fmt.Sprintf("script time of a decision at %d subjects : at 1,000", r.Keys))
	return r.Add(scalePage, map[string]any{"Client": singleRueidis, "Goroutines": many, "Table": table})
}

// subjects makes n of them, returns the bytes that they use, and decides on some at random.
func subjects(r *report.Report, s *server.Server, n int) (bytes float64, f load.Figures, err error) {
	if err := s.Flush(); err != nil {
		return 0, f, err
	}
	o, err := sashOver("plain", singleRueidis)[0].open(s.Addr, costing(1, sash.PerHour(1000)))
	if err != nil {
		return 0, f, err
	}
	defer o.close()
	before, err := s.UsedMemory()
	if err != nil {
		return 0, f, err
	}
	if admitted, err := o.spread(n, n); err != nil || admitted != int64(n) {
		return 0, f, fmt.Errorf("netbench: %d of %d subjects admitted: %w", admitted, n, err)
	}
	after, err := s.UsedMemory()
	if err != nil {
		return 0, f, err
	}
	for round := range r.ClientRounds {
		out, err := load.Run{Decide: o.decide, Keys: load.Keys(n, 0, uint64(round)), Goroutines: many, Duration: r.Turn,
			Meters: []load.Meter{s.ScriptTime, s.Processor}}.Do()
		if err != nil {
			return 0, f, err
		}
		if out.Failed > 0 {
			return 0, f, out.Err
		}
		f.Add(out)
	}
	return after - before, f, nil
}
