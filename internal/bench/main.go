// Command bench measures Sash beside its alternatives, in alternating rounds on one machine, and writes the tables of
// docs/benchmarks.md.
//
//	scripts    server time and memory of a decision on Redis, beside a sorted set and a script that only makes the calls
//	limiters   many keys, a hot key, refusals and leases, beside limiters of Go, Python, Node and Java
//	service    sash serve beside Envoy's own rate limit service
//	regions    one limit over three regions, beside one Redis for all
//	logs       sash-logs beside GoAccess
//
// Without -o it prints them. If a program that a part needs is missing, such as Node or GoAccess, bench says so and goes on.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A bench is one run of the command.
type bench struct {
	ctx    context.Context
	rounds int           // alternating rounds of every figure
	turn   time.Duration // how long a contender decides in a round
	calls  int           // decisions in a round where Redis's own time is measured
	dir    string        // for what is built and installed
	out    io.Writer     // receives progress
	tables []table
}

func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(b.out, "%s %s\n", time.Now().Format(time.TimeOnly), fmt.Sprintf(format, args...))
}

var parts = []struct {
	name string
	run  func(*bench)
}{
	{"scripts", (*bench).scripts}, {"limiters", (*bench).limiters}, {"service", (*bench).service},
	{"regions", (*bench).regions}, {"logs", (*bench).logs},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// A failure is what check panics with. It ends the run, which then stops the processes that it has started.
type failure struct{ err error }

// check ends the run if there is an error. what says, optionally, what has failed.
func check(err error, what ...string) {
	if err != nil && what != nil {
		err = fmt.Errorf("%s: %w", what[0], err)
	}
	if err != nil {
		panic(failure{err})
	}
}

// must returns a value, and ends the run if there is an error.
func must[T any](value T, err error) T {
	check(err)
	return value
}

func run(ctx context.Context) (err error) {
	defer func() {
		switch failed := recover().(type) {
		case nil:
		case failure:
			err = failed.err
		default:
			panic(failed)
		}
	}()
	b := &bench{ctx: ctx, out: os.Stderr, rounds: 5, turn: time.Second, calls: 10_000, dir: "../../bin/bench"}
	only := flag.String("parts", "", "the parts to measure, with commas between them (all)")
	page := flag.String("o", "", "the page whose tables are replaced (none: print them)")
	quick := flag.Bool("quick", false, "check that everything runs")
	driven := flag.String("drive", "", "a limiter, whose history is written for the load on standard input; its address is the argument")
	flag.Parse()
	if *driven != "" {
		drive(ctx, *driven, flag.Arg(0), os.Stdin, os.Stdout)
		return nil
	}
	if *quick {
		b.rounds, b.turn, b.calls = 1, 100*time.Millisecond, 640
	}
	check(os.MkdirAll(b.dir, 0o755))
	names := strings.FieldsFunc(*only, func(r rune) bool { return r == ',' })
	for _, p := range parts {
		if *only != "" && !slices.Contains(names, p.name) {
			continue
		}
		names = slices.DeleteFunc(names, func(n string) bool { return n == p.name })
		p.run(b)
	}
	if len(names) > 0 {
		return fmt.Errorf("there is no part %s", strings.Join(names, ", "))
	}
	if *page == "" {
		for _, t := range b.tables {
			fmt.Printf("## %s\n\n%s\n", t.name, t)
		}
		return nil
	}
	text, err := replaceTables(string(must(os.ReadFile(*page))), b.tables)
	return errors.Join(err, os.WriteFile(*page, []byte(text), 0o644))
}

// A figure is one measurement in each round.
type figure []float64

func (f figure) median() float64 {
	sorted := slices.Sorted(slices.Values(f))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// String is the median, with the lowest and the highest round.
func (f figure) String() string {
	return fmt.Sprintf("%s (%s–%s)", short(f.median()), short(slices.Min(f)), short(slices.Max(f)))
}

func short(v float64) string {
	digits := 0
	if v != 0 {
		digits = max(0, 2-int(math.Floor(math.Log10(math.Abs(v)))))
	}
	return strconv.FormatFloat(v, 'f', min(digits, 4), 64)
}

// A table is a named table of the page. The first table of a part has its versions.
type table struct {
	name     string
	versions []string
	head     []string
	rows     [][]string
}

func (t *table) row(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		if v, ok := c.(float64); ok {
			c = short(v)
		}
		row[i] = fmt.Sprint(c)
	}
	t.rows = append(t.rows, row)
}

// String returns Markdown: the rows and, if the table has versions, when it was measured and with what.
func (t table) String() string {
	var b strings.Builder
	if t.versions != nil {
		about := append([]string{time.Now().Format("2 January 2006"), fmt.Sprintf("%d processors", runtime.NumCPU()), runtime.Version()}, t.versions...)
		fmt.Fprintf(&b, "%s.\n\n", strings.Join(about, ", "))
	}
	fmt.Fprintf(&b, "| %s |\n|%s\n", strings.Join(t.head, " | "), " --- |"+strings.Repeat(" ---: |", len(t.head)-1))
	for _, row := range t.rows {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
	}
	return b.String()
}

// replaceTables returns a page in which tables replace those of the same names, which stand between the comments
// "<!-- table: NAME -->" and "<!-- end -->".
func replaceTables(page string, tables []table) (string, error) {
	for _, t := range tables {
		mark := "<!-- table: " + t.name + " -->\n"
		before, rest, ok := strings.Cut(page, mark)
		_, after, ended := strings.Cut(rest, "<!-- end -->")
		if !ok || !ended {
			return page, fmt.Errorf("the page has no place for the table %q", t.name)
		}
		page = before + mark + "\n" + t.String() + "\n<!-- end -->" + after
	}
	return page, nil
}

// alternate measures each of n contenders once per round, beginning with another one each time.
func (b *bench) alternate(n int, measure func(i int)) {
	for round := range b.rounds {
		for i := range n {
			check(b.ctx.Err())
			measure((i + round) % n)
		}
	}
}
