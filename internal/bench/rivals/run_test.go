package rivals

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"example.com/sash/internal/bench/report"
	"example.com/sash/internal/bench/server"
)

func startRun(t *testing.T, all ...Program) *run {
	t.Helper()
	s, err := server.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	r := &run{Report: report.New(report.Config{ClientRounds: 2, Turn: 10 * time.Millisecond}, io.Discard), server: s}
	t.Cleanup(r.end)
	if err := r.start(t.Context(), all, "127.0.0.1:1"); err != nil {
		t.Fatal(err)
	}
	return r
}

// Whatever cannot be measured is named with its reason, and the rest is measured.
func TestTheRestGoesOn(t *testing.T) {
	r := startRun(t,
		self(t, "fake", "good"), self(t, "fake", "dies"), self(t, "fake", "an error"), self(t, "fake", "admits everything"),
		self(t, "fake", "refuses under load"), self(t, "fake", "garbage at start"), self(t, "fake", "slow at first"),
		Program{Rivals: "bucket4j", Start: []string{"no-such-java"}})
	if err := r.checks(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.rounds(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"dies: ", "an error: no such limit", "admits everything: it admits 60 of 60", "refuses under load: it refuses 1 of 100",
		"fake: ", "bucket4j: "} {
		if !slices.ContainsFunc(r.missing, func(m string) bool { return strings.HasPrefix(m, want) }) {
			t.Errorf("%q is not among what is missing: %q", want, r.missing)
		}
	}
	if len(r.missing) != 6 || len(r.contenders) != 2 || r.contenders[0].name != "good" || r.contenders[1].name != "slow at first" {
		t.Fatalf("%d are missing, and %d measured", len(r.missing), len(r.contenders))
	}
	for i, f := range r.contenders[0].figures {
		if len(f.PerSecond) != 2 || f.PerSecond.Median() != 10_000 || f.P99.Median() != 99 {
			t.Errorf("%s: %v decisions a second", workloads[i].name, f.PerSecond)
		}
	}
}

// A run that is interrupted ends, and does not take that for a rival's failure.
func TestAnInterruptedRunEnds(t *testing.T) {
	r := startRun(t, self(t, "fake", "hangs"))
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := r.checks(ctx); !errors.Is(err, context.DeadlineExceeded) || len(r.missing) > 0 {
		t.Errorf("the error is %v; missing are %q", err, r.missing)
	}
	gone(t, r.contenders[0].child.cmd.Process.Pid)
	if err := r.start(ctx, []Program{self(t, "fake", "good"), {Rivals: "another"}}, "127.0.0.1:1"); !errors.Is(err, context.DeadlineExceeded) || len(r.missing) > 0 {
		t.Errorf("while programs start: the error is %v; missing are %q", err, r.missing)
	}
}

// Every contender of the program in Go decides on Redis, or asks a service, and enforces the limit.
func TestTheProgramInGo(t *testing.T) {
	service := remote{"service over gRPC", "1.2", serveRules(t)}
	r := startRun(t, self(t, append([]string{GoProgram}, service.arguments()...)...))
	if err := r.checks(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := len(limiters("", []remote{service})); len(r.contenders) != want || len(r.missing) > 0 {
		t.Errorf("%d of %d contenders; missing are %q", len(r.contenders), want, r.missing)
	}
	for _, c := range r.contenders {
		if a, err := c.load(t.Context(), workloads[1], 20*time.Millisecond); err != nil || a.P50 <= 0 || a.P99 < a.P50 || a.MS < 20 {
			t.Errorf("%s: %+v, %v", c.name, a, err)
		}
	}
	if last := r.contenders[len(r.contenders)-1]; last.name != service.name || last.version != service.version {
		t.Errorf("the last contender is %s %s, want the service", last.name, last.version)
	}
}

// A program is installed once, and again if its commands change or if that failed.
func TestInstall(t *testing.T) {
	below := t.TempDir()
	p := Program{Name: "python", Get: [][]string{{"sh", "-c", "echo got >>../log"}, {"false"}}}
	if _, err := p.install(t.Context(), below); err == nil {
		t.Error("a command that fails is no error")
	}
	p.Get = p.Get[:1]
	for range 2 {
		dir, err := p.install(t.Context(), below)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(dir, "main.py")); err != nil {
			t.Error(err)
		}
	}
	p.Get = append(p.Get, []string{"true"})
	if _, err := p.install(t.Context(), below); err != nil {
		t.Fatal(err)
	}
	if log, err := os.ReadFile(filepath.Join(below, "log")); err != nil || string(log) != strings.Repeat("got\n", 3) {
		t.Errorf("it was installed as often as this has lines: %q, %v", log, err)
	}
	p.Get = [][]string{{"no-such-mvn"}}
	if _, err := p.install(t.Context(), t.TempDir()); err == nil || err.Error() != "there is no no-such-mvn" {
		t.Errorf("a program that is missing: %v", err)
	}
}

// A program is installed again if a file has another name or other contents.
func TestSumOfFiles(t *testing.T) {
	sums := map[string]bool{}
	for _, files := range []fstest.MapFS{{"a": {Data: []byte("1")}}, {"a": {Data: []byte("2")}}, {"b": {Data: []byte("1")}}} {
		sum, err := Program{}.sum(files)
		if err != nil {
			t.Fatal(err)
		}
		sums[sum] = true
	}
	if len(sums) != 3 {
		t.Errorf("three folders have %d sums", len(sums))
	}
}
