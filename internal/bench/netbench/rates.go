package netbench

import (
	"fmt"

	"example.com/sash/internal/bench/load"
	"example.com/sash/internal/bench/report"
	"example.com/sash/internal/bench/server"
)

// rates are the calls a second on one Redis.
var rates = []int{2000, 4000, 8000, 16_000, 32_000}

// busier measures one Redis as its calls double. A busier Redis reads and answers more calls at once.
func busier(r *report.Report, data map[string]any) error {
	table := report.NewTable("store, calls a second", "script µs a decision", "Redis µs a decision", "client µs a decision", "decisions/s")
	slopes := report.NewSlopes("calls a second", rates, "")
	for _, way := range []struct{ client, decorator string }{{goRedis, "plain"}, {singleRueidis, "coalesce"}} {
		name := fmt.Sprintf("Sash %s, %s", way.decorator, way.client)
		r.Say("%s, more and more calls", name)
		figures, err := atRates(r, way.client, way.decorator)
		if err != nil {
			return err
		}
		for i, rate := range rates {
			table.Row(append(append([]any{fmt.Sprintf("%s, %d", name, rate)}, figuresOf(figures[i])...), figures[i].PerSecond)...)
		}
		slopes.Row(name+": Redis", load.Used(figures, redisTime))
		slopes.Row(name+": client", load.Used(figures, clientTime))
	}
	data["Rates"], data["RateSlopes"] = table, slopes.Table
	return nil
}

// atRates measures one store at every rate.
func atRates(r *report.Report, client, decorator string) ([]load.Figures, error) {
	s, err := server.Start()
	if err != nil {
		return nil, err
	}
	defer s.Stop()
	plain, done, err := openStore(client, s.Addr)
	if err != nil {
		return nil, err
	}
	defer done()
	decide, err := onSubjects(decorator, plain, clusterSubjects)
	if err != nil {
		return nil, err
	}
	return load.Alternate(r.ClientRounds, func(round int) (runs []load.Run) {
		for _, rate := range rates {
			runs = append(runs, load.Run{Decide: decide, Keys: load.Keys(clusterSubjects, 0, uint64(round)), Goroutines: many,
				Rate: float64(rate), Duration: r.Turn, Meters: metersOf(s)})
		}
		return runs
	})
}
