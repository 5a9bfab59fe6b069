package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"example.com/sash/internal/bench/gobench"
	"example.com/sash/internal/bench/instructions"
	"example.com/sash/internal/bench/redisbench"
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
