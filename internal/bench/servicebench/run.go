// Package servicebench measures sash serve as its clients see it: over gRPC, HTTP and RESP, deciding in its own memory
// and on a real redis-server, all on one machine.
package servicebench

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"slices"
	"time"

	"example.com/sash/internal/bench/load"
	"example.com/sash/internal/bench/report"
	"example.com/sash/internal/bench/server"
)

//go:embed page.md
var page string

// inFlight is the number of calls that wait for an answer at the same time.
var inFlight = []int{1, 64, 256}

const keys = 1000

// A demand is which subjects the calls are charged to.
type demand struct {
	name, entry string // of the rule
	keys        int
}

var demands = []demand{{"many keys", "client", keys}, {"hot key", "hot", 1}, {"over the limit", "small", 1}}

// A row of the table.
type row struct {
	store    string
	protocol protocol
	demand   demand
	service  *Service
	inFlight int
	starved  bool
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
	binary, err := Build(context.Background(), dir, rules)
	if err != nil {
		return err
	}
	var rows []*row
	for _, store := range []struct {
		name, addr string
		starved    bool
	}{{"memory", "", false}, {"Redis", redis.Addr, false}, {"Redis", redis.Addr, true}} {
		s, err := serve(binary, store.addr, store.starved)
		if err != nil {
			return err
		}
		defer func() {
			if stopped := s.Stop(); err == nil {
				err = stopped
			}
		}()
		if store.starved {
			rows = append(rows, &row{store: store.name, protocol: protocols[0], demand: demands[0], service: s, inFlight: 64, starved: true})
			continue
		}
		rows = append(rows, rowsOf(store.name, s)...)
	}
	for i := range r.ClientRounds {
		r.Say("the service, round %d of %d", i+1, r.ClientRounds)
		for _, row := range rows {
			if err := row.measure(r, redis); err != nil {
				return err
			}
		}
	}
	beside, err := compare(r, binary)
	if err != nil {
		return err
	}
	r.AtMost(0.1, mean(rows[len(rows)-1].figures.Failed), "% of calls that Redis did not decide, sash serve, 64 in flight, busy four times over (mean)")
	return r.Add(page, map[string]any{"Keys": keys, "Connections": connections, "Turn": turn(r), "Table": table(rows),
		"InFlight": compared, "Beside": beside})
}

// rowsOf returns those of a service: every demand over gRPC, and many keys over HTTP and RESP.
func rowsOf(store string, s *Service) (rows []*row) {
	for _, p := range protocols {
		for _, d := range demands {
			for _, n := range inFlight {
				if p.name == protocols[0].name || d.keys == keys {
					rows = append(rows, &row{store: store, protocol: p, demand: d, service: s, inFlight: n})
				}
			}
		}
	}
	return rows
}

func mean(f report.Figure) (mean float64) {
	for _, v := range f {
		mean += v / float64(len(f))
	}
	return mean
}

// turn is how long a row is measured in a round: longer than others, since outside Linux the service's processor time is
// counted in hundredths of a second.
func turn(r *report.Report) time.Duration { return 4 * r.Turn }

func (row *row) measure(r *report.Report, redis *server.Server) error {
	if err := redis.Flush(); err != nil {
		return err
	}
	if row.starved {
		end, err := starve()
		if err != nil {
			return err
		}
		defer end()
	}
	decide, done, err := row.protocol.dial(row.service, row.demand.entry)
	if err != nil {
		return err
	}
	defer done()
	out, err := load.Run{Decide: decide, Keys: load.Keys(row.demand.keys, 0, 1), Goroutines: row.inFlight, Duration: turn(r),
		Meters: []load.Meter{row.service.processor, redis.Processor}}.Do()
	if err == nil {
		row.figures.Add(out)
	}
	return err
}

func table(rows []*row) report.Table {
	table := report.NewTable("store, protocol, load, in flight", "decisions/s", "p50, µs", "p99, µs", "service µs a decision", "Redis µs a decision")
	for _, r := range rows {
		f := r.figures
		redis := "-"
		if r.store == "Redis" {
			redis = f.Used[1].String()
		}
		name := fmt.Sprintf("%s, %s, %s, %d", r.store, r.protocol.name, r.demand.name, r.inFlight)
		if r.starved {
			name += ", busy four times over"
		}
		table.Row(name+failures(f), f.PerSecond, f.P50, f.P99, f.Used[0], redis)
	}
	return table
}

// failures says for a table how many calls failed. It is empty if none did.
func failures(f load.Figures) string {
	most := slices.Max(f.Failed)
	if most == 0 {
		return ""
	}
	return fmt.Sprintf(" (%.2f %% failed, up to %.2f)", f.Failed.Median(), most)
}
