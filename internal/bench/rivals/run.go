package rivals

import (
	"context"
	_ "embed"
	"errors"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"example.com/sash/internal/bench/exactness"
	"example.com/sash/internal/bench/load"
	"example.com/sash/internal/bench/report"
	"example.com/sash/internal/bench/server"
	"example.com/sash/internal/bench/servicebench"
)

//go:embed page.md
var page string

// A workload is the calls that every contender meets.
type workload struct {
	name          string
	keys, callers int
	units         int64
	window        time.Duration
}

// The limits have room for everything that a contender can do, and netbench measures under the same.
var workloads = []workload{
	{"1,000 keys, one caller", 1000, 1, 10_000, time.Minute},
	{"1,000 keys, 64 callers", 1000, 64, 10_000, time.Minute},
	{"one hot key below its limit, 64 callers", 1, 64, 20_000_000, time.Second},
}

const (
	checkUnits  = 50
	checkWindow = time.Hour

	// A limit of so few units shows the worst window of contenders that answer a thousand calls a second.
	exactUnits  = 100
	exactWindow = time.Second // some libraries count in whole seconds

	installed = "../../bin/rivals" // where the programs are installed
)

type run struct {
	*report.Report
	server     *server.Server
	dir        string // of the services
	services   []*servicebench.Service
	children   []*child
	contenders []*contender
	missing    []string // what is not measured, and why
}

// Run measures everything that can be had and adds it to the report.
func Run(to *report.Report) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop() // until then, an interrupted run ends what it has started
	s, err := server.Start()
	if err != nil {
		return err
	}
	defer s.Stop()
	to.Redis = s.Version
	self, err := os.Executable()
	if err != nil {
		return err
	}
	r := &run{Report: to, server: s}
	defer r.end()
	sash, services, err := r.serve(ctx)
	if err != nil {
		return err
	}
	inGo := Program{Rivals: "Sash, redis_rate, redis-cell and services over gRPC (Go)", Start: append([]string{self, GoProgram}, services...)}
	start := func(ctx context.Context) error { return r.start(ctx, append([]Program{inGo}, programs...), sash) }
	for _, step := range []func(context.Context) error{start, r.checks, r.rounds, r.exactness} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return r.page()
}

// start starts the programs that can be had. It returns only the error of the context.
func (r *run) start(ctx context.Context, all []Program, sash string) error {
	for _, p := range all {
		r.Say("starting: %s", p.Rivals)
		c, err := p.start(ctx, installed, r.server.Addr, sash, os.Stderr)
		switch {
		case err == nil:
			r.children = append(r.children, c)
		case ctx.Err() == nil:
			r.misses(p.Rivals, err)
			continue
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		for _, has := range c.hello.Contenders {
			r.contenders = append(r.contenders, &contender{name: has.Name, version: has.Version, runtime: c.hello.Runtime, child: c})
		}
	}
	return nil
}

// end ends everything. Whatever fails now has been measured.
func (r *run) end() {
	for _, c := range r.children {
		c.end()
	}
	for _, s := range r.services {
		_ = s.Stop()
	}
	if r.dir != "" {
		_ = os.RemoveAll(r.dir)
	}
}

// misses records that something is not measured.
func (r *run) misses(what string, err error) {
	first, _, _ := strings.Cut(err.Error(), "\n") // the rest is what a command printed
	r.missing = append(r.missing, what+": "+first)
	r.Say("not measured: %s: %v", what, err)
}

// each runs a step for every contender, from one of them on, on an empty server. It drops contenders that fail, and
// returns only errors of the server and of the context.
func (r *run) each(ctx context.Context, from int, step func(*contender) error) error {
	var failed []*contender
	for i := range r.contenders {
		c := r.contenders[(i+from)%len(r.contenders)]
		if err := r.server.Flush(); err != nil {
			return err
		}
		err := step(c)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			r.misses(c.name, err)
			failed = append(failed, c)
		}
	}
	r.contenders = slices.DeleteFunc(r.contenders, func(c *contender) bool { return slices.Contains(failed, c) })
	if len(r.contenders) == 0 {
		return errors.New("rivals: nothing can be measured")
	}
	return nil
}

// checks asks whether the contenders enforce a limit, and warms them up: a virtual machine compiles what runs often.
func (r *run) checks(ctx context.Context) error {
	return r.each(ctx, 0, func(c *contender) error {
		c.figures = make([]load.Figures, len(workloads))
		if err := c.check(ctx); err != nil {
			return err
		}
		_, err := c.load(ctx, workloads[1], 4*r.Turn)
		return err
	})
}

// rounds measures the contenders side by side: each once per round, in turn, beginning with another one each time.
func (r *run) rounds(ctx context.Context) error {
	for i, w := range workloads {
		r.Say("%s", w.name)
		for round := range r.ClientRounds {
			if err := r.each(ctx, round, func(c *contender) error { return r.once(ctx, c, i) }); err != nil {
				return err
			}
		}
	}
	return nil
}

// once measures one contender once.
func (r *run) once(ctx context.Context, c *contender, i int) error {
	if _, err := c.load(ctx, workloads[i], r.Turn/4); err != nil {
		return err
	}
	before, err := r.server.Processor()
	if err != nil {
		return err
	}
	a, err := c.load(ctx, workloads[i], r.Turn)
	if err != nil {
		return err
	}
	after, err := r.server.Processor()
	c.figures[i].Add(a.outcome(after - before))
	return err
}

// exactness counts what each contender admits in its worst window; in a quick run, the first of each program.
func (r *run) exactness(ctx context.Context) error {
	seen := map[*child]bool{}
	return r.each(ctx, 0, func(c *contender) error {
		if r.Quick && seen[c.child] {
			return nil
		}
		seen[c.child] = true
		r.Say("worst window, %s", c.name)
		var last error
		var mu sync.Mutex
		c.count = exactness.Run(exactWindow, func() (bool, error) {
			allowed, err := c.ask(ctx, c.key("hot"), exactUnits, exactWindow)
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				last = err
			}
			return allowed, err
		})
		if c.count.All == 0 {
			return last
		}
		return nil
	})
}
