package netbench

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"example.com/sash"
	"example.com/sash/internal/bench/exactness"
	"example.com/sash/internal/bench/report"
	"example.com/sash/redistest"
)

// Config says how much to measure.
type Config struct {
	Rounds   int           // alternating rounds of every figure
	Long     time.Duration // how long each contender is measured in a round
	Window   time.Duration // of the limit whose worst window is looked for
	Progress io.Writer     // told what is being measured
}

// Run measures everything, adds it to the document, and returns the targets.
func Run(cfg Config, doc *report.Document) ([]report.Target, error) {
	server, err := redistest.Run()
	if err != nil {
		return nil, err
	}
	defer server.Stop()
	r := &run{Config: cfg, server: server, doc: doc, lineup: contenders(), keys: map[string][]string{}, cells: map[at]*cell{}}
	for _, part := range []func() error{r.scenarios, r.sweeps, r.added, r.exact} {
		if err := part(); err != nil {
			return nil, err
		}
	}
	r.write()
	return r.targets(), nil
}

type run struct {
	Config
	lineup
	server *redistest.Server
	doc    *report.Document
	keys   map[string][]string // by scenario
	cells  map[at]*cell
	bytes  map[string]float64 // an admitted call, by contender
	counts map[string]exactness.Count
}

// An at is a place in the tables.
type at struct {
	contender, scenario string
	goroutines          int
}

// A cell is one contender in one scenario.
type cell struct {
	perSecond, p50, p99, server, allocs, failed report.Figure
}

func (c *cell) add(o outcome) {
	c.perSecond.Add(o.PerSecond)
	c.p50.Add(o.P50)
	c.p99.Add(o.P99)
	c.server.Add(o.server)
	c.allocs.Add(o.Allocs)
	c.failed.Add(100 * float64(o.Failed) / float64(max(1, o.Decisions+o.Failed)))
}

func (r *run) say(format string, args ...any) {
	fmt.Fprintf(r.Progress, "%s net: %s\n", time.Now().Format(time.TimeOnly), fmt.Sprintf(format, args...))
}

func (r *run) chosen(s scenario) []string {
	if r.keys[s.name] == nil {
		r.keys[s.name] = s.choose()
	}
	return r.keys[s.name]
}

// rounds measures contenders side by side: every contender once a round, in turn.
func (r *run) rounds(s scenario, goroutines int, all []contender) error {
	r.say("%s, %d goroutines", s.name, goroutines)
	for range r.Rounds {
		for _, c := range all {
			o, err := r.once(c, s, goroutines)
			if err != nil {
				return err
			}
			place := at{c.name, s.name, goroutines}
			if r.cells[place] == nil {
				r.cells[place] = &cell{}
			}
			r.cells[place].add(o)
		}
	}
	return nil
}

// many is how many goroutines the tables of scenarios have.
const many = 64

var (
	everything = []scenario{uniform, zipf, hot, refused, dear, twoWindows}
	goroutines = []int{1, 8, many, 512}
)

func (r *run) scenarios() error {
	for _, s := range everything {
		if err := r.rounds(s, many, r.all()); err != nil {
			return err
		}
	}
	return nil
}

// sweeps is from one goroutine to many.
func (r *run) sweeps() error {
	for _, n := range goroutines {
		if n == many {
			continue
		}
		if err := r.rounds(uniform, n, r.bare()); err != nil {
			return err
		}
		if err := r.rounds(hot, n, r.sweepers()); err != nil {
			return err
		}
	}
	return nil
}

// sweepers is who takes part in the sweep of the hot key: refusals have no part in it.
func (r *run) sweepers() []contender {
	return slices.Concat(r.plain, r.layered[2:], r.rivals) // coalesce and lease
}

var memoryQuota = quota{limits: []sash.Limit{sash.PerHour(5000)}, cost: 1}

// exactUnits is the limit whose worst window is looked for.
const exactUnits = 1000

// exact counts what each contender admits in the worst window, and what it keeps for it.
func (r *run) exact() error {
	r.bytes, r.counts = map[string]float64{}, map[string]exactness.Count{}
	for _, c := range r.all() {
		r.say("worst window and memory, %s", c.name)
		var err error
		if r.bytes[c.name], err = r.perAdmitted(c); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		if err := flush(r.server); err != nil {
			return err
		}
		o, err := c.open(r.server.Addr(), quota{limits: []sash.Limit{sash.Every(exactUnits, r.Window)}, cost: 1})
		if err != nil {
			return err
		}
		r.counts[c.name] = exactness.Run(r.Window, func() (bool, error) {
			return o.decide(context.Background(), "hot")
		})
		o.close()
	}
	return nil
}
