package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A change to the prose of a page is also in its template, and the other way around.
func TestPagesHaveTheProseOfTheirTemplates(t *testing.T) {
	templates, err := filepath.Glob("../../*/*.md")
	if err != nil {
		t.Fatal(err)
	}
	var pages strings.Builder
	for _, name := range []string{"../../../../docs/benchmarks.md", "../../../../docs/benchmarks-service.md", "../../../../docs/benchmarks-scale.md",
		"../../../../docs/benchmarks-regions.md", "../../../../docs/benchmarks-servers.md", "../../../../docs/benchmarks-rivals.md"} {
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
