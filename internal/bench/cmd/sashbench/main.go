// Command sashbench measures Sash beside what else there is, prints the tables and writes them as
// Markdown. See `make bench`.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"

	"example.com/sash/internal/bench/gobench"
	"example.com/sash/internal/bench/redisbench"
	"example.com/sash/internal/bench/report"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "sashbench:", err)
		os.Exit(1)
	}
}

func run() error {
	out := flag.String("o", "", "write the document to this file as Markdown")
	rounds := flag.Int("rounds", 11, "alternating rounds of every figure")
	calls := flag.Int("calls", 10_000, "decisions a round on Redis")
	parts := flag.String("parts", "redis,go", "what to measure")
	flag.Parse()

	redis, inGo := strings.Contains(*parts, "redis"), strings.Contains(*parts, "go")
	var body report.Document
	var targets []report.Target
	versions := report.Versions("github.com/redis/go-redis/v9", "golang.org/x/time", "github.com/sethvargo/go-limiter",
		"github.com/throttled/throttled/v2", "github.com/caddyserver/certmagic")
	if redis {
		met, server, err := redisbench.Run(redisbench.Config{Rounds: *rounds, Calls: *calls, Progress: os.Stderr}, &body)
		if err != nil {
			return err
		}
		targets = append(targets, met...)
		versions = append([]string{server}, versions...)
	}
	if inGo {
		met, err := gobench.Run(gobench.Config{Rounds: *rounds, Progress: os.Stderr}, &body)
		if err != nil {
			return err
		}
		targets = append(targets, met...)
	}
	return write(*out, head(*rounds, *calls, versions, targets), &body)
}

// head is the first part of the document: what it is, how it was made, and which targets are met.
func head(rounds, calls int, versions []string, targets []report.Target) *report.Document {
	var doc report.Document
	doc.Section("Benchmarks", fmt.Sprintf(`
Written by `+"`make bench`"+`; run it for your own machine. Ratios within one run are what counts: contenders take turns within each
round, so that what else the machine does meets all of them. Absolute figures differ from machine to machine.

- Machine: %s.
- Versions: %s.
- Command: `+"`cd internal/bench && go run ./cmd/sashbench -rounds %d -calls %d`"+`.
- Rounds: %d, alternating; medians, with the lowest and the highest round in brackets.
- Server time: `+"`usec`"+` of EVALSHA in Redis's own INFO commandstats, reset before each round. Calls are pipelined from one connection, %s
  Requests are the bytes that redisstore sends.
- The baseline is the sorted-set script as the field writes it: TIME, ZREMRANGEBYSCORE, ZCARD, a ZADD for each unit, PEXPIRE, and the
  oldest member by ZRANGE on a refusal (internal/bench/redisbench/sortedset.lua).`,
		report.Machine(), strings.Join(versions, ", "), rounds, calls, rounds, "64 at a time, so that the server is busy."))
	table := &report.Table{Head: []string{"target", "at most", "measured", "met"}}
	for _, t := range targets {
		met := "no"
		if t.Met() {
			met = "yes"
		}
		table.Row(t.Name, fmt.Sprintf("%.4g", t.Want), fmt.Sprintf("%.3g", t.Measured), met)
	}
	doc.Section("Targets", "What the project set itself, and this run.")
	doc.Table(table)
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
	}
	if name == "" {
		return nil
	}
	return os.WriteFile(name, text.Bytes(), 0o644)
}
