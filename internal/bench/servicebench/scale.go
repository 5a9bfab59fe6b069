package servicebench

import (
	"context"
	_ "embed"
	"os"
	"sync/atomic"

	"example.com/sash/internal/bench/load"
	"example.com/sash/internal/bench/report"
	"example.com/sash/internal/bench/server"
)

//go:embed scale.md
var scalePage string

// callsInAll is the calls a second on instances of any number. It leaves two processors half idle.
const callsInAll = 4000

var (
	// instances is how many decide.
	instances = []int{1, 2, 4, 8}
	// callsForEach is the calls a second for each. The most instances then have callsInAll.
	callsForEach = callsInAll / instances[len(instances)-1]
	// callsForOne is the calls a second on a single instance.
	callsForOne = []int{callsForEach, 1000, 2000, callsInAll, 8000}
)

// The meters of a run, in their order.
const (
	serviceTime = iota
	redisTime
)

// A fleet is instances of sash serve over one Redis.
type fleet struct {
	dir      string // of the rules, which the instances follow
	redis    *server.Server
	services []*Service
	decides  []load.Decide // of each
}

// Scale measures instances of sash serve that share a Redis, and adds them to the report.
func Scale(r *report.Report) (err error) {
	f := &fleet{}
	defer func() {
		if ended := f.end(); err == nil {
			err = ended
		}
	}()
	if err := f.begin(); err != nil {
		return err
	}
	idle, err := load.AtRest(f.processor(len(f.services)), 4*r.Turn)
	if err != nil {
		return err
	}
	var runs []load.Run
	for _, n := range instances {
		runs = append(runs, f.run(r, n, callsInAll))
	}
	for _, n := range instances[:len(instances)-1] {
		runs = append(runs, f.run(r, n, callsForEach*n))
	}
	for _, rate := range callsForOne {
		if rate != callsInAll && rate != callsForEach { // those are among the others
			runs = append(runs, f.run(r, 1, rate))
		}
	}
	figures, err := load.Alternate(r.ClientRounds, func(round int) []load.Run {
		r.Say("instances of sash serve, round %d of %d", round+1, r.ClientRounds)
		for i := range runs {
			runs[i].Keys = load.Keys(keys, 0, uint64(round))
		}
		return runs
	})
	if err != nil {
		return err
	}
	n := len(instances)
	all, each, rest := figures[:n], append(append([]load.Figures{}, figures[n:2*n-1]...), figures[n-1]), figures[2*n-1:]
	one := []load.Figures{each[0], rest[0], rest[1], all[0], rest[2]}
	data := map[string]any{"InAll": callsInAll, "ForEach": callsForEach, "Connections": connections, "Subjects": keys,
		"Rest": report.Number(idle / float64(len(f.services)))}
	data["Instances"], data["InstanceSlopes"] = scaleTables("instances, same load in all", instances, all)
	data["BusyInstances"], data["BusyInstanceSlopes"] = scaleTables("instances, same load each", instances, each)
	data["Rates"], data["RateSlopes"] = scaleTables("calls a second on one instance", callsForOne, one)
	return r.Add(scalePage, data)
}

func scaleTables(what string, sizes []int, figures []load.Figures) (times, slopes report.Table) {
	times = report.NewTable(what, "all instances µs a decision", "Redis µs a decision", "p50, µs", "decisions/s")
	for i, n := range sizes {
		f := figures[i]
		times.Row(n, f.Used[serviceTime], f.Used[redisTime], f.P50, f.PerSecond)
	}
	s := report.NewSlopes(what, sizes, "")
	s.Row("all instances", load.Used(figures, serviceTime))
	s.Row("Redis", load.Used(figures, redisTime))
	return times, s.Table
}

// begin starts Redis and the instances.
func (f *fleet) begin() (err error) {
	if f.redis, err = server.Start(); err != nil {
		return err
	}
	if f.dir, err = os.MkdirTemp("", "servicebench"); err != nil {
		return err
	}
	binary, err := Build(context.Background(), f.dir, rules)
	if err != nil {
		return err
	}
	for range instances[len(instances)-1] {
		s, err := Start(binary, "--redis", "redis://"+f.redis.Addr, "--budget", "1s") // a machine that is busy for a moment fails no decision
		if err != nil {
			return err
		}
		f.services = append(f.services, s)
		decide, _, err := dialGRPC(s, demands[0].entry) // the process ends soon
		if err != nil {
			return err
		}
		f.decides = append(f.decides, load.Admitting(decide))
	}
	return nil
}

// end stops the instances, and then Redis.
func (f *fleet) end() (err error) {
	for _, s := range f.services {
		if stopped := s.Stop(); err == nil {
			err = stopped
		}
	}
	if f.redis != nil {
		f.redis.Stop()
	}
	if f.dir != "" {
		_ = os.RemoveAll(f.dir)
	}
	return err
}

// run makes calls on n instances in turn.
func (f *fleet) run(r *report.Report, n, rate int) load.Run {
	var turn atomic.Uint64
	return load.Run{
		Decide: func(ctx context.Context, key string) (bool, error) {
			return f.decides[turn.Add(1)%uint64(n)](ctx, key)
		},
		Goroutines: 64, Rate: float64(rate), Duration: 2 * r.Turn,
		Meters: []load.Meter{f.processor(n), load.Processor(f.redis.Pid())},
	}
}

// processor is a meter of the first n instances.
func (f *fleet) processor(n int) load.Meter {
	var meters []load.Meter
	for _, s := range f.services[:n] {
		meters = append(meters, s.processor)
	}
	return load.Sum(meters...)
}
