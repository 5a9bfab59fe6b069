package netbench

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"example.com/sash"
	"example.com/sash/internal/bench/exactness"
	"example.com/sash/internal/bench/load"
	"example.com/sash/internal/bench/report"
	"example.com/sash/internal/bench/server"
)

// A scenario is the calls that every contender meets.
type scenario struct {
	name  string
	quota quota
	keys  int
	skew  float64 // of a Zipf distribution over the keys; 0 if all are equally likely
	full  bool    // the window is full and stays full
}

// With so few keys most calls find theirs: redisbench measures the first call of a key.
var (
	uniform    = scenario{name: "1,000 keys, all equally likely", keys: 1000, quota: costing(1, sash.PerMinute(10_000))}
	zipf       = scenario{name: "1,000 keys, Zipf 1.1", keys: 1000, skew: 1.1, quota: costing(1, sash.PerSecond(100_000))}
	dear       = scenario{name: "1,000 keys, cost 100", keys: 1000, quota: costing(100, sash.PerMinute(100_000))}
	twoWindows = scenario{name: "1,000 keys, two windows", keys: 1000, quota: costing(1, sash.PerMinute(10_000), sash.PerHour(100_000))}
	refused    = scenario{name: "one hot key over its limit", keys: 1, full: true, quota: costing(1, sash.PerHour(100))}
	single     = scenario{name: "one key, one goroutine", keys: 1, quota: costing(1, sash.Every(100_000, 10*time.Second))}
	// A limit that no contender exhausts has more units than sash.MaxEntries, so it needs a resolution.
	hot = scenario{name: "one hot key below its limit", keys: 1,
		quota: quota{limits: []sash.Limit{sash.PerSecond(20_000_000)}, resolution: 10 * time.Millisecond, cost: 1}}

	scenarios  = []scenario{uniform, zipf, hot, refused, dear, twoWindows}
	goroutines = []int{1, 8, many, 512}
)

func costing(cost int64, limits ...sash.Limit) quota { return quota{limits: limits, cost: cost} }

const (
	many       = 64   // goroutines in the tables of scenarios
	exactUnits = 1000 // of the limit whose worst window is searched for
)

type run struct {
	*report.Report
	lineup
	server *server.Server
	keys   map[string][]string // by scenario
	cells  map[at]*load.Figures
	bytes  map[string]float64 // per admitted call, by contender
	counts map[string]exactness.Count
}

// An at is a place in the tables.
type at struct {
	contender, scenario string
	goroutines          int
}

func (r *run) at(c contender, s scenario, goroutines int) *load.Figures {
	place := at{c.name, s.name, goroutines}
	if r.cells[place] == nil {
		r.cells[place] = &load.Figures{}
	}
	return r.cells[place]
}

// Run measures everything and adds it to the report.
func Run(to *report.Report) error {
	s, err := server.Start()
	if err != nil {
		return err
	}
	defer s.Stop()
	to.Redis = s.Version
	r := &run{Report: to, server: s, lineup: contenders(), keys: map[string][]string{}, cells: map[at]*load.Figures{},
		bytes: map[string]float64{}, counts: map[string]exactness.Count{}}
	for _, s := range scenarios {
		if err := r.rounds(s, many, r.limiters()); err != nil {
			return err
		}
	}
	for _, n := range goroutines {
		if n == many {
			continue // measured above
		}
		if err := r.rounds(uniform, n, r.bare()); err != nil {
			return err
		}
		if err := r.rounds(hot, n, r.lineup.hot()); err != nil {
			return err
		}
	}
	if err := r.rounds(single, 1, append(r.empty, r.plain...)); err != nil {
		return err
	}
	for _, c := range r.limiters() {
		r.Say("worst window and memory, %s", c.name)
		if r.bytes[c.name], err = r.perAdmitted(c); err == nil {
			r.counts[c.name], err = r.worst(c)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	r.targets()
	return r.page()
}

// rounds measures the contenders side by side: each once per round, in turn.
func (r *run) rounds(s scenario, goroutines int, all []contender) error {
	r.Say("%s, %d goroutines", s.name, goroutines)
	if r.keys[s.name] == nil {
		r.keys[s.name] = load.Keys(s.keys, s.skew, 1)
	}
	for range r.ClientRounds {
		for _, c := range all {
			out, err := r.once(c, s, goroutines)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", c.name, s.name, err)
			}
			r.at(c, s, goroutines).Add(out)
		}
	}
	return nil
}

// open opens a contender on an empty server.
func (r *run) open(c contender, q quota) (*opened, error) {
	if err := r.server.Flush(); err != nil {
		return nil, err
	}
	return c.open(r.server.Addr, q)
}

// once measures one contender once.
func (r *run) once(c contender, s scenario, goroutines int) (out load.Outcome, err error) {
	o, err := r.open(c, s.quota)
	if err != nil {
		return out, err
	}
	defer o.close()
	keys := r.keys[s.name]
	for s.full {
		allowed, err := o.decide(context.Background(), keys[0])
		if err != nil {
			return out, err
		}
		if !allowed {
			break
		}
	}
	runtime.GC()
	out, err = load.Run{Decide: o.decide, Keys: keys, Goroutines: goroutines, Duration: r.Turn,
		Meters: []load.Meter{r.server.Processor}}.Do()
	if c.ours && out.Failed > 0 {
		r.Say("%s: %d of %d calls failed: %v", c.name, out.Failed, out.Failed+out.Decisions, out.Err)
	}
	return out, err
}

// perAdmitted returns the bytes that Redis keeps for an admitted call, at about a thousand calls per key.
func (r *run) perAdmitted(c contender) (float64, error) {
	q := costing(1, sash.PerHour(5000))
	o, err := r.open(c, q)
	if err != nil {
		return 0, err
	}
	defer o.close()
	admitted, _ := o.spread(50_000, 50) // throttled fails some
	time.Sleep(longest(q))              // leases return what they have left
	bytes, err := r.server.KeyMemory()
	return bytes / float64(max(1, admitted)), err
}

// worst counts what a contender admits in the worst window.
func (r *run) worst(c contender) (exactness.Count, error) {
	o, err := r.open(c, costing(1, sash.Every(exactUnits, r.Window)))
	if err != nil {
		return exactness.Count{}, err
	}
	defer o.close()
	return exactness.Run(r.Window, func() (bool, error) { return o.decide(context.Background(), "hot") }), nil
}
