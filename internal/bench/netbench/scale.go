package netbench

import (
	_ "embed"
	"os"

	"example.com/sash/internal/bench/load"
	"example.com/sash/internal/bench/report"
	"example.com/sash/internal/bench/server"
)

//go:embed scale.md
var scalePage string

// Scale measures the cost of a decision against the number of subjects, keys, limits and calls on one Redis, and against
// the number of primaries of a cluster, and adds it to the report.
func Scale(r *report.Report) error {
	data := map[string]any{"Client": singleRueidis, "Goroutines": many}
	for _, part := range []func(r *report.Report, data map[string]any) error{subjects, together, policies, busier, primaries} {
		if err := part(r, data); err != nil {
			return err
		}
	}
	return r.Add(scalePage, data)
}

// The meters of a run on one Redis, in their order.
const (
	scriptTime = iota
	redisTime
	clientTime
)

func metersOf(s *server.Server) []load.Meter {
	return []load.Meter{s.ScriptTime, load.Processor(s.Pid()), load.Processor(os.Getpid())}
}

// slopesOf are the slopes of the times.
func slopesOf(of string, sizes []int, things string, figures []load.Figures) report.Table {
	slopes := report.NewSlopes(of, sizes, things)
	for meter, name := range []string{scriptTime: "script µs a decision", redisTime: "Redis µs a decision", clientTime: "client µs a decision"} {
		slopes.Row(name, load.Used(figures, meter))
	}
	return slopes.Table
}

// figuresOf is the times of each size, as columns "script", "Redis" and "client" have them.
func figuresOf(f load.Figures) []any {
	return []any{f.Used[scriptTime], f.Used[redisTime], f.Used[clientTime]}
}
