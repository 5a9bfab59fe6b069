// Package servicebench measures sash serve as its clients see it: over gRPC and HTTP, deciding in its own memory
// and on a real redis-server, all on one machine.
package servicebench

import (
	_ "embed"
	"fmt"
	"os"
	"slices"

	"example.com/sash/internal/bench/load"
	"example.com/sash/internal/bench/report"
	"example.com/sash/internal/bench/server"
)

//go:embed page.md
var page string

// inFlight is the number of calls that wait for an answer at the same time.
var inFlight = []int{1, 64, 256}

const keys = 1000

// A row of the table.
type row struct {
	store    string
	protocol protocol
	service  *service
	inFlight int
	figures  load.Figures
}

// Run measures everything and adds it to the report.
func Run(r *report.Report) (err error) {
	redis, err := server.Start()
	if err != nil {
		return err
	}
	defer redis.Stop()
	r.Redis = redis.Version
	dir, err := os.MkdirTemp("", "servicebench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	binary, err := build(dir)
	if err != nil {
		return err
	}
	var rows []*row
	for _, store := range []struct{ name, addr string }{{"memory", ""}, {"Redis", redis.Addr}} {
		s, err := serve(binary, store.addr)
		if err != nil {
			return err
		}
		defer func() {
			if stopped := s.stop(); err == nil {
				err = stopped
			}
		}()
		for _, p := range protocols {
			for _, n := range inFlight {
				rows = append(rows, &row{store: store.name, protocol: p, service: s, inFlight: n})
			}
		}
	}
	// The system counts the service's processor time in hundredths of a second: shorter turns would be all rounding.
	turn := 4 * r.Turn
	chosen := load.Keys(keys, 0, 1)
	for i := range r.ClientRounds {
		r.Say("the service, round %d of %d", i+1, r.ClientRounds)
		for _, row := range rows {
			if err := redis.Flush(); err != nil {
				return err
			}
			decide, done, err := row.protocol.dial(row.service)
			if err != nil {
				return err
			}
			out, err := load.Run{Decide: decide, Keys: chosen, Goroutines: row.inFlight, Duration: turn,
				Meters: []load.Meter{row.service.processor, redis.Processor}}.Do()
			done()
			if err != nil {
				return err
			}
			row.figures.Add(out)
		}
	}
	return r.Add(page, map[string]any{"Keys": keys, "Connections": connections, "Turn": turn, "Table": table(rows)})
}

func table(rows []*row) report.Table {
	table := report.NewTable("store, protocol, in flight", "decisions/s", "p50, µs", "p99, µs", "service µs a decision", "Redis µs a decision")
	for _, r := range rows {
		f := r.figures
		redis := "-"
		if r.store == "Redis" {
			redis = f.Used[1].String()
		}
		name := fmt.Sprintf("%s, %s, %d", r.store, r.protocol.name, r.inFlight)
		if most := slices.Max(f.Failed); most > 0 {
			name += fmt.Sprintf(" (up to %.2f %% failed)", most)
		}
		table.Row(name, f.PerSecond, f.P50, f.P99, f.Used[0], redis)
	}
	return table
}
