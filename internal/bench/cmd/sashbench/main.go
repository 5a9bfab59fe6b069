// Command sashbench measures Sash beside its alternatives, prints the results as a page of Markdown and writes
// them to a file. See `make bench`.
package main

import (
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"example.com/sash/internal/bench/gobench"
	"example.com/sash/internal/bench/instructions"
	"example.com/sash/internal/bench/netbench"
	"example.com/sash/internal/bench/redisbench"
	"example.com/sash/internal/bench/regionbench"
	"example.com/sash/internal/bench/report"
	"example.com/sash/internal/bench/rivals"
	"example.com/sash/internal/bench/scaling"
	"example.com/sash/internal/bench/servicebench"
)

// head is the first part of the page: how to read it, the targets and, written by hand from profiles, what
// limits the figures that miss theirs.
//
//go:embed head.md
var head string

// benches are the parts of a run, by name.
var benches = map[string][]func(*report.Report) error{
	"net":     {netbench.Run},
	"service": {servicebench.Run},
	"redis":   {redisbench.Run},
	"go":      {gobench.Run, gobench.HTTP},
	"scale":   {gobench.Scale, netbench.Scale, servicebench.Scale},
	"regions": {regionbench.Run},
	"servers": {redisbench.Servers},
	"rivals":  {rivals.Run},

	"instructions": {redisbench.Instructions, gobench.Instructions},
}

func main() {
	start := run
	switch {
	case len(os.Args) > 1 && os.Args[1] == regionbench.Caller:
		start = func() error { return regionbench.Call(os.Stdin, os.Stdout) }
	case len(os.Args) > 1 && os.Args[1] == rivals.GoProgram:
		start = func() error { return rivals.Serve(os.Args[2:], os.Stdin, os.Stdout) }
	case len(os.Args) == 4 && os.Args[1] == gobench.Decider:
		start = func() error { return gobench.DecideHot(os.Args[2:]) }
	}
	if err := start(); err != nil {
		fmt.Fprintln(os.Stderr, "sashbench:", err)
		os.Exit(1)
	}
}

func run() error {
	cfg := report.Config{Window: time.Second, Keys: 1_000_000}
	out := flag.String("o", "", "write the page to this file, and its plots beside it")
	flag.IntVar(&cfg.Rounds, "rounds", 7, "alternating rounds of every figure")
	flag.IntVar(&cfg.ClientRounds, "net-rounds", 5, "alternating rounds of every figure of decisions through a client")
	flag.IntVar(&cfg.Calls, "calls", 10_000, "decisions in a round where the server's time is measured")
	flag.DurationVar(&cfg.Turn, "long", 250*time.Millisecond, "how long each contender decides through a client in a round")
	parts := flag.String("parts", "net,redis,go", "what to measure, from net, service, redis, go, scale, regions, servers, rivals and instructions")
	quick := flag.Bool("quick", false, "check in about a minute that everything runs; the figures mean little")
	flag.Parse()
	if *quick {
		cfg = report.Config{Rounds: 1, ClientRounds: 1, Calls: 1000, Turn: 50 * time.Millisecond, Window: 200 * time.Millisecond, Keys: 100_000, Quick: true}
	}
	r := report.New(cfg, os.Stderr)
	if *out != "" {
		r.Dir = filepath.Dir(*out)
	}
	chosen := strings.Split(*parts, ",")
	if err := check(cfg, chosen, flag.Args()); err != nil {
		return err
	}
	for _, part := range chosen {
		for _, bench := range benches[part] {
			if err := bench(r); err != nil {
				return err
			}
		}
	}
	machine, err := report.Machine()
	if err != nil {
		return err
	}
	versions := report.Versions("github.com/redis/go-redis/v9", "github.com/redis/rueidis", "github.com/go-redis/redis_rate/v10",
		"github.com/ulule/limiter/v3", "golang.org/x/time", "github.com/sethvargo/go-limiter", "github.com/throttled/throttled/v2",
		"github.com/go-chi/httprate", "github.com/didip/tollbooth/v7",
		"github.com/caddyserver/certmagic")
	if r.Redis != "" {
		versions = append([]string{r.Redis}, versions...)
	}
	page, err := r.Page(head, map[string]any{
		"Machine": machine, "Versions": versions, "Arguments": os.Args[1:], "Limits": slices.Contains(chosen, "net"),
	})
	if err != nil {
		return err
	}
	fmt.Print(page)
	if *out == "" {
		return nil
	}
	if slices.Contains(chosen, "instructions") {
		if err := compare(r, *out, page); err != nil {
			return err
		}
	}
	if err := os.WriteFile(*out, []byte(page), 0o644); err != nil || filepath.Base(*out) != scaling.Figures {
		return err
	}
	return scaling.Write(r.Dir)
}

// check returns what is wrong with the arguments, before anything is measured.
func check(cfg report.Config, parts, rest []string) error {
	for _, part := range parts {
		if benches[part] == nil {
			return fmt.Errorf("-parts: there is no part %q", part)
		}
	}
	switch {
	case len(rest) > 0:
		return fmt.Errorf("%q is no flag", rest[0])
	case cfg.Rounds < 1 || cfg.ClientRounds < 1 || cfg.Calls < 1:
		return errors.New("-rounds, -net-rounds and -calls are at least 1")
	case cfg.Turn < time.Millisecond:
		return errors.New("-long is at least 1ms")
	}
	return nil
}

// compare reports how the counts of a page differ from those of the page that it replaces.
func compare(r *report.Report, file, page string) error {
	now, err := instructions.Read([]byte(page))
	if err != nil {
		return err
	}
	old, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	before, err := instructions.Read(old)
	if err != nil { // the new counts replace it
		r.Say("%s is not compared: %v", file, err)
		return nil
	}
	lines := instructions.Differences(before, now)
	r.Say("%d of %d counts differ by more than 1 %% from those in %s", len(lines), len(now), file)
	for _, line := range lines {
		r.Say("%s", line)
	}
	return nil
}
