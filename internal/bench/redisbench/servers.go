package redisbench

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/goredisstore"
	"example.com/sash/internal/bench/exactness"
	"example.com/sash/internal/bench/report"
	"example.com/sash/internal/bench/server"
	"example.com/sash/internal/bench/servers"
	"example.com/sash/internal/redistest"
	"example.com/sash/rueidisstore"
)

//go:embed servers.md
var serversPage string

// ofServers is where the servers are installed, from the directory of this module.
const ofServers = "../../bin/servers"

// exactUnits is the limit whose worst window is searched for.
const exactUnits = 1000

// A fleet is one server of each version.
type fleet struct {
	*report.Report
	names   []string
	servers []bench
	lineup
}

// Servers measures decisions on every version of a server, in turn, and adds them to the report.
func Servers(r *report.Report) error {
	f := fleet{Report: r, lineup: contenders()}
	for _, s := range servers.All {
		got, program, err := s.Get(context.Background(), ofServers)
		if err != nil {
			return err
		}
		if err := os.Setenv(redistest.EnvServer, program); err != nil {
			return err
		}
		started, err := server.Start()
		if err != nil {
			return err
		}
		defer started.Stop()
		f.names, f.servers = append(f.names, got.String()), append(f.servers, bench{started})
	}
	data := map[string]any{"Units": exactUnits}
	for _, part := range []struct {
		name    string
		measure func() (report.Table, error)
	}{{"Times", f.times}, {"Memory", f.bytes}, {"Exact", f.exact}} {
		var err error
		if data[part.name], err = part.measure(); err != nil {
			return err
		}
	}
	return r.Add(serversPage, data)
}

func (f fleet) table(first string) report.Table {
	return report.NewTable(append([]string{first}, f.names...)...)
}

// times measures the processor time of a decision, all servers in each round.
func (f fleet) times() (report.Table, error) {
	table := f.table("µs of the server's processor a decision")
	for _, m := range []struct {
		contender contender
		load      load
	}{
		{f.compact, withRoom(1)}, {f.compact, fresh(f.Calls)}, {f.compact, leaving(300, 1)}, {f.compact, refused(1)},
		{f.compact, withRoom(100)}, {f.hand, withRoom(1)}, {f.empty, withRoom(1)},
	} {
		n := f.Calls
		if m.load.cost > 1 {
			n = min(n, 900)
		}
		f.Say("%s, %s, cost %d", m.contender.name, m.load.name, m.load.cost)
		figures := make([]report.Figure, len(f.servers))
		for range f.Rounds {
			for i, b := range f.servers {
				t, err := b.round(m.contender, m.load, n)
				if err != nil {
					return table, fmt.Errorf("%s: %w", f.names[i], err)
				}
				figures[i].Add(t.processor)
			}
		}
		row := []any{fmt.Sprintf("%s, cost %d, %s", m.contender.name, m.load.cost, m.load.name)}
		for i, figure := range figures {
			text := figure.String()
			if i > 0 {
				text += fmt.Sprintf(", × %.2f", report.Ratio(figure, figures[0]))
			}
			row = append(row, text)
		}
		table.Row(row...)
	}
	return table, nil
}

// bytes measures memory.
func (f fleet) bytes() (report.Table, error) {
	table := f.table("bytes an admitted call")
	for _, m := range []struct {
		contender contender
		calls     int
	}{{f.compact, 10}, {f.compact, 1000}, {f.compact, 100_000}, {f.hand, 10}, {f.hand, 1000}, {f.hand, 100_000}} {
		row := []any{fmt.Sprintf("%s, %d calls", m.contender.name, m.calls)}
		for _, b := range f.servers {
			bytes, err := b.memory(m.contender, m.calls, int64(m.calls))
			if err != nil {
				return table, err
			}
			row = append(row, fmt.Sprintf("%.1f", bytes))
		}
		table.Row(row...)
	}
	return table, nil
}

// exact counts the units that each algorithm admits in its worst window.
func (f fleet) exact() (report.Table, error) {
	table := f.table(fmt.Sprintf("worst window (limit %d)", exactUnits))
	row := func(name string, opts sash.Options, open func(addr string) (driver.Store, func(), error)) error {
		f.Say("worst window of %s", name)
		cells := []any{name}
		for i, b := range f.servers {
			store, done, err := open(b.Addr)
			if err != nil {
				return fmt.Errorf("%s: %w", f.names[i], err)
			}
			limiter, err := sash.New(store, &opts, sash.Every(exactUnits, f.Window))
			if err != nil {
				return err
			}
			count := exactness.Run(f.Window, func() (bool, error) {
				res, err := limiter.Allow(context.Background(), "exact:"+name)
				return res.Allowed, err
			})
			done()
			if count.Failed > 0 {
				return fmt.Errorf("%s: %s: %d calls failed", f.names[i], name, count.Failed)
			}
			cells = append(cells, count.Over(exactUnits))
		}
		table.Row(cells...)
		return nil
	}
	for _, algorithm := range sash.Algorithms() {
		opts := sash.Options{Algorithm: algorithm}
		if algorithm == sash.SlidingBuckets {
			opts.Resolution = f.Window / 100
		}
		if err := row(algorithm.String()+", go-redis", opts, overGoRedis); err != nil {
			return table, err
		}
	}
	return table, row(sash.SlidingLog.String()+", rueidis", sash.Options{}, overRueidis)
}

func overGoRedis(addr string) (driver.Store, func(), error) {
	client := redis.NewClient(&redis.Options{Addr: addr, DialTimeout: time.Second})
	return goredisstore.New(client, nil), func() { _ = client.Close() }, nil
}

func overRueidis(addr string) (driver.Store, func(), error) {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true})
	if err != nil {
		return nil, nil, err
	}
	return rueidisstore.New(client, nil), client.Close, nil
}
