// Command sashbench measures Sash beside what else there is, prints the tables and writes them as
// Markdown. See `make bench`.
package main

import (
	"bytes"
	_ "embed"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"example.com/sash/internal/bench/gobench"
	"example.com/sash/internal/bench/netbench"
	"example.com/sash/internal/bench/redisbench"
	"example.com/sash/internal/bench/report"
	"example.com/sash/internal/bench/servicebench"
)

// limits is what profiles said about the figures that are missed, written by hand.
//
//go:embed limits.md
var limits string

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "sashbench:", err)
		os.Exit(1)
	}
}

func run() error {
	out := flag.String("o", "", "write the document to this file as Markdown")
	rounds := flag.Int("rounds", 7, "alternating rounds of every figure")
	calls := flag.Int("calls", 10_000, "decisions a round on Redis")
	netRounds := flag.Int("net-rounds", 5, "alternating rounds of every figure of decisions through a client")
	long := flag.Duration("long", 250*time.Millisecond, "how long each contender decides through a client in a round")
	parts := flag.String("parts", "net,service,redis,go", "what to measure: net, service, redis, go, scale")
	quick := flag.Bool("quick", false, "see that everything runs, in about a minute; the figures mean little")
	flag.Parse()
	if *quick {
		*rounds, *calls, *netRounds, *long = 1, 1000, 1, 50*time.Millisecond
	}
	most, window := 1_000_000, time.Second
	if *quick {
		most, window = 100_000, 200*time.Millisecond
	}
	chosen := strings.Split(*parts, ",")
	through, redis, inGo := slices.Contains(chosen, "net"), slices.Contains(chosen, "redis"), slices.Contains(chosen, "go")
	var body report.Document
	var targets []report.Target
	versions := report.Versions("github.com/redis/go-redis/v9", "github.com/redis/rueidis", "github.com/go-redis/redis_rate/v10", "github.com/ulule/limiter/v3", "golang.org/x/time", "github.com/sethvargo/go-limiter",
		"github.com/throttled/throttled/v2", "github.com/caddyserver/certmagic")
	if through {
		met, err := netbench.Run(netbench.Config{Rounds: *netRounds, Long: *long, Window: window, Progress: os.Stderr}, &body)
		if err != nil {
			return err
		}
		targets = append(targets, met...)
	}
	if slices.Contains(chosen, "service") {
		// Seconds of processor time are told in hundredths: shorter rounds would be all rounding.
		if err := servicebench.Run(servicebench.Config{Rounds: *netRounds, Long: 4 * *long, Progress: os.Stderr}, &body); err != nil {
			return err
		}
	}
	if redis {
		met, server, err := redisbench.Run(redisbench.Config{Rounds: *rounds, Calls: *calls, Progress: os.Stderr}, &body)
		if err != nil {
			return err
		}
		targets = append(targets, met...)
		versions = append([]string{server}, versions...)
	}
	if inGo {
		met, err := gobench.Run(gobench.Config{Rounds: *rounds, Window: window, Progress: os.Stderr}, &body)
		if err != nil {
			return err
		}
		targets = append(targets, met...)
	}
	if slices.Contains(chosen, "scale") {
		inMemory, err := gobench.Scale(os.Stderr, most, &body)
		if err != nil {
			return err
		}
		onRedis, err := netbench.Scale(os.Stderr, most, *netRounds, *long, &body)
		if err != nil {
			return err
		}
		targets = append(append(targets, inMemory...), onRedis...)
	}
	return write(*out, head(chosen, versions, targets), &body)
}

// head is the first part of the document: what it is, how it was made, and which targets are met.
func head(parts, versions []string, targets []report.Target) *report.Document {
	var doc report.Document
	command := "cd internal/bench && go run ./cmd/sashbench"
	if args := strings.Join(os.Args[1:], " "); args != "" {
		command += " " + args
	}
	doc.Section("Benchmarks", fmt.Sprintf(`
Written by `+"`make bench`"+` (or `+"`make bench-scale`"+`); run it for your own machine. Ratios within one run are what counts: contenders take
turns within each round, so that what else the machine does meets all of them. Absolute figures are hints: they differ from machine to
machine, and this one is virtual and shared.

- Machine: %s. Redis and the program that asks it run on these same processors.
- Versions: %s.
- Command: `+"`%s`"+`.
- Figures are medians over alternating rounds, with the lowest and the highest round in brackets.`,
		report.Machine(), strings.Join(versions, ", "), command))
	table := &report.Table{Head: []string{"target", "wanted", "measured", "met"}}
	for _, t := range targets {
		met, bound := "no", "≤"
		if t.Met() {
			met = "yes"
		}
		if t.Least {
			bound = "≥"
		}
		table.Row(t.Name, fmt.Sprintf("%s %.4g", bound, t.Want), report.Number(t.Measured), met)
	}
	doc.Section("Targets", "What the project set itself, and this run. A ratio is the median of the ratios of the rounds.")
	doc.Table(table)
	if slices.Contains(parts, "net") {
		doc.Section("What limits the figures that are missed", limits)
	}
	return &doc
}

func write(name string, docs ...*report.Document) error {
	var text bytes.Buffer
	for i, doc := range docs {
		if err := doc.WriteText(os.Stdout); err != nil {
			return err
		}
		if i > 0 {
			text.WriteByte('\n')
		}
		if err := doc.WriteMarkdown(&text, i == 0); err != nil {
			return err
		}
		for _, p := range doc.Plots() {
			if name == "" {
				continue
			}
			var picture bytes.Buffer
			if err := p.WriteSVG(&picture); err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(filepath.Dir(name), p.File), picture.Bytes(), 0o644); err != nil {
				return err
			}
		}
	}
	if name == "" {
		return nil
	}
	return os.WriteFile(name, text.Bytes(), 0o644)
}
