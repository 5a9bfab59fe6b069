package arch_test

import (
	"path"
	"regexp"
	"strings"
	"testing"
)

var (
	enum   = regexp.MustCompile(`(?m)^(?:const|\t)\s*[A-Za-z]\w*\s+([A-Z]\w*)\s*=\s*(?:1 << )?iota\b`)
	prints = regexp.MustCompile(`(?m)^func \((?:\w+ )?(\w+)\) String\(\) string`)
)

// A log that prints 1 for an exported type of named numbers sends its reader to the source: each has a method String.
func TestExportedEnumsPrintTheirNames(t *testing.T) {
	named, enums := map[string]bool{}, map[string]bool{} // by directory and type
	walk(t, func(name string) {
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || strings.Contains("/"+name, "/internal/") {
			return
		}
		text := read(t, name)
		for _, found := range prints.FindAllStringSubmatch(text, -1) {
			named[path.Dir(name)+"."+found[1]] = true
		}
		for _, found := range enum.FindAllStringSubmatch(text, -1) {
			enums[path.Dir(name)+"."+found[1]] = true
		}
	})
	for of := range enums {
		if !named[of] {
			t.Errorf("%s has no method String", of)
		}
	}
	if len(enums) == 0 {
		t.Error("no enum found: is the repository where this test looks?")
	}
}
