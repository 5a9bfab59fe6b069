package servicebench

import (
	"cmp"
	"debug/buildinfo"
	"fmt"
	"os"
	"path/filepath"

	"example.com/sash/internal/bench/load"
	"example.com/sash/internal/bench/report"
	"example.com/sash/internal/bench/server"
)

// originalVariable names the binary of Envoy's own rate limit service.
const originalVariable = "RLS_BIN"

// compared is the number of calls in flight when the services are compared.
const compared = 64

// A contender is a service of the comparison, on a Redis of its own.
type contender struct {
	name    string
	service *Service
	redis   *server.Server
	rows    []*row // by demand
}

// compare measures sash serve beside Envoy's own service, and returns a table with the original's version above it, or,
// without a binary of it, a sentence that says so.
func compare(r *report.Report, sash string) (table string, err error) {
	original := os.Getenv(originalVariable)
	if original == "" {
		return "Not measured: " + originalVariable + " names no binary of Envoy's service.", nil
	}
	version, err := versionOf(original)
	if err != nil {
		return "", err
	}
	var all []*contender
	defer func() {
		for _, c := range all {
			err = cmp.Or(err, c.end())
		}
	}()
	for _, start := range []struct {
		name  string
		start func(redis string) (*Service, error)
	}{
		{"sash serve", func(redis string) (*Service, error) { return serve(sash, redis, false) }},
		{"Envoy's service", func(redis string) (*Service, error) { return serveOriginal(original, filepath.Dir(sash), redis, 0) }},
		{"Envoy's service, local cache", func(redis string) (*Service, error) {
			return serveOriginal(original, filepath.Dir(sash), redis, 16<<20)
		}},
	} {
		c := &contender{name: start.name}
		if c.redis, err = server.Start(); err != nil {
			return "", err
		}
		all = append(all, c)
		if c.service, err = start.start(c.redis.Addr); err != nil {
			return "", err
		}
		for _, d := range demands {
			c.rows = append(c.rows, &row{protocol: protocols[0], demand: d, service: c.service, inFlight: compared})
		}
	}
	if err := takeTurns(r, all); err != nil {
		return "", err
	}
	judge(r, all[0].rows, all[1].rows)
	return version + ":\n\n" + tableOf(all).String(), nil
}

// versionOf returns the module and the version of a Go program.
func versionOf(binary string) (string, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return "", fmt.Errorf("servicebench: %s is no binary of Envoy's rate limit service: %w", originalVariable, err)
	}
	return info.Main.Path + " " + info.Main.Version, nil
}

// takeTurns measures all contenders in each round, and begins each time with another one.
func takeTurns(r *report.Report, all []*contender) error {
	for round := range r.ClientRounds {
		r.Say("the service beside Envoy's, round %d of %d", round+1, r.ClientRounds)
		for d := range demands {
			for i := range all {
				c := all[(i+round)%len(all)]
				if err := c.rows[d].measure(r, c.redis); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// judge records how far sash serve is from its targets beside the original.
func judge(r *report.Report, ours, theirs []*row) {
	for d, want := range []struct{ speed, processor float64 }{{1.8, 1. / 2}, {3, 1. / 4}} {
		ours, theirs := ours[d].figures, theirs[d].figures
		of := fmt.Sprintf(", %s, %d in flight over gRPC, sash serve : Envoy's service", demands[d].name, compared)
		r.AtLeast(want.speed, report.Ratio(ours.PerSecond, theirs.PerSecond), "decisions/s"+of)
		r.AtMost(want.processor, report.Ratio(processor(ours), processor(theirs)), "processor time of service and Redis"+of)
	}
}

// processor returns the processor time of service and Redis.
func processor(f load.Figures) report.Figure {
	sum := make(report.Figure, len(f.Used[0]))
	for i := range sum {
		sum[i] = f.Used[0][i] + f.Used[1][i]
	}
	return sum
}

func tableOf(all []*contender) report.Table {
	table := report.NewTable("load, service", "decisions/s", "p50, µs", "p99, µs", "service µs a decision", "Redis µs a decision", "both", "sash serve is faster by")
	for d, demand := range demands {
		for _, c := range all {
			f := c.rows[d].figures
			faster := "-"
			if c != all[0] {
				faster = report.Number(report.Ratio(all[0].rows[d].figures.PerSecond, f.PerSecond))
			}
			table.Row(demand.name+", "+c.name+failures(f), f.PerSecond, f.P50, f.P99, f.Used[0], f.Used[1], processor(f), faster)
		}
	}
	return table
}

// end stops the service and its Redis.
func (c *contender) end() (err error) {
	if c.service != nil {
		err = c.service.Stop()
	}
	c.redis.Stop()
	return err
}
