package main

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"example.com/sash/internal/bench/gobench"
	"example.com/sash/internal/bench/instructions"
	"example.com/sash/internal/bench/redisbench"
	"example.com/sash/internal/bench/report"
)

const instructionsPage = "../../../../docs/benchmarks-instructions.md"

// A change to the prose of a page is also in its template, and the other way around.
func TestPagesHaveTheProseOfTheirTemplates(t *testing.T) {
	templates, err := filepath.Glob("../../*/*.md")
	if err != nil {
		t.Fatal(err)
	}
	var pages strings.Builder
	for _, name := range []string{"../../../../docs/benchmarks.md", "../../../../docs/benchmarks-service.md", "../../../../docs/benchmarks-scale.md",
		"../../../../docs/benchmarks-regions.md", "../../../../docs/benchmarks-servers.md", "../../../../docs/benchmarks-rivals.md",
		instructionsPage} {
		page, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		pages.Write(page)
	}
	for _, name := range append(templates, "head.md") {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if !strings.Contains(line, "{{") && !strings.Contains(pages.String(), line) {
				t.Errorf("%s: no page has the line %q", name, line)
			}
		}
	}
}

// A page without targets has no table of them.
func TestTheHeadHasTheTargetsThatThereAre(t *testing.T) {
	for targets := range 2 {
		r := report.New(report.Config{}, io.Discard)
		for range targets {
			r.AtMost(2, 1, "cost")
		}
		page, err := r.Page(head, map[string]any{"Machine": "", "Versions": []string{}, "Arguments": []string{}, "Limits": false})
		if err != nil || strings.Contains(page, "Targets") != (targets > 0) || strings.Contains(page, "| cost") != (targets > 0) {
			t.Errorf("with %d targets: %v\n%s", targets, err, page)
		}
	}
}

// What is counted is in the page, so that the next count can be compared with it.
func TestThePageHasEveryCount(t *testing.T) {
	page, err := os.ReadFile(instructionsPage)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := instructions.Read(page)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, row := range rows {
		if row.Count <= 0 {
			t.Errorf("%s: %v instructions", row.Name, row.Count)
		}
		names = append(names, row.Name)
	}
	if want := append(redisbench.Counted(), gobench.HotPaths()...); !slices.Equal(names, want) {
		t.Errorf("docs/benchmarks-instructions.md has the rows %q, and `make bench-instructions` counts %q", names, want)
	}
}

// Wrong arguments are an error before anything is measured.
func TestWrongArguments(t *testing.T) {
	right := report.Config{Rounds: 1, ClientRounds: 1, Calls: 1, Turn: time.Millisecond}
	if err := check(right, []string{"net", "go"}, nil); err != nil {
		t.Fatal(err)
	}
	for says, change := range map[string]func(cfg *report.Config, parts, rest *[]string){
		`no part "nett"`: func(_ *report.Config, parts, _ *[]string) { *parts = append(*parts, "nett") },
		`no part ""`:     func(_ *report.Config, parts, _ *[]string) { *parts = []string{""} },
		`"rivals"`:       func(_ *report.Config, _, rest *[]string) { *rest = []string{"rivals"} },
		"-rounds":        func(cfg *report.Config, _, _ *[]string) { cfg.Rounds = 0 },
		"-net-rounds":    func(cfg *report.Config, _, _ *[]string) { cfg.ClientRounds = -1 },
		"-calls":         func(cfg *report.Config, _, _ *[]string) { cfg.Calls = 0 },
		"-long":          func(cfg *report.Config, _, _ *[]string) { cfg.Turn = 0 },
	} {
		cfg, parts, rest := right, []string{"net"}, []string(nil)
		change(&cfg, &parts, &rest)
		if err := check(cfg, parts, rest); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("the error is %v, want one with %q", err, says)
		}
	}
}

// Counts are reported beside those before, and replace whatever the page had.
func TestCountsAreCompared(t *testing.T) {
	page, err := os.ReadFile(instructionsPage)
	if err != nil {
		t.Fatal(err)
	}
	for before, says := range map[string]string{
		string(page):     " 0 of ",
		"no table":       "is not compared: instructions: the page has no counts",
		"<<<<<<< HEAD\n": "is not compared: ",
	} {
		file := filepath.Join(t.TempDir(), "page.md")
		if err := os.WriteFile(file, []byte(before), 0o600); err != nil {
			t.Fatal(err)
		}
		var said strings.Builder
		if err := compare(report.New(report.Config{}, &said), file, string(page)); err != nil || !strings.Contains(said.String(), says) {
			t.Errorf("a page of %d bytes: it says %q and returns %v, want %q", len(before), &said, err, says)
		}
	}
}
