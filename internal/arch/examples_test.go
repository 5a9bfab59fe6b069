package arch_test

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	runnable = regexp.MustCompile(`(?m)^\s*// (Unordered output|Output):`)
	example  = regexp.MustCompile(`(?m)^func Example`)
)

// What go doc shows of a package that users import has an example that runs. redisstore is used through its
// adapters, and the conformance suites by tests.
func TestEveryPackageHasAnExampleThatRuns(t *testing.T) {
	without := []string{"redisstore", "storetest"}
	var public, shown []string
	walk(t, func(name string) {
		pkg := path.Dir(name)
		hidden := strings.Contains("/"+pkg+"/", "/internal/") || matches("service/...", pkg) || matches("storetest/...", pkg)
		switch {
		case hidden || !strings.HasSuffix(name, ".go"):
		case !strings.HasSuffix(name, "_test.go"):
			public = append(public, pkg)
		default:
			if text := read(t, name); example.MatchString(text) && runnable.MatchString(text) {
				shown = append(shown, pkg)
			}
		}
	})
	slices.Sort(public)
	for _, pkg := range slices.Compact(public) {
		if !slices.Contains(shown, pkg) && !slices.Contains(without, pkg) {
			t.Errorf("package %s has no example with an output: add one to its example_test.go", pkg)
		}
	}
}
