// Package arch has no code, only tests: who may import whom in this repository, what its modules require, and what its
// documents say. Tests may import any package that is not internal to another module.
package arch_test

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// layer says which packages of sash the packages of a module may import. Directories are from the repository's root; one
// that ends in "/..." stands for all below it too. What is below the importing package itself is always allowed.
type layer struct {
	packages string
	imports  []string
}

// layers has every rule; the first that fits a package counts, and a package that none fits is a
// sibling. A new adapter gets a line of its own.
var layers = []layer{
	{"driver", nil},
	{"internal/threshold", []string{"driver"}},
	{"internal/window", []string{"driver", "internal/threshold"}},
	{"internal/apart", []string{"driver"}},
	{".", []string{"driver", "internal/apart"}},
	{"goredisstore", []string{".", "driver", "redisstore"}},
	{"rueidisstore", []string{".", "driver", "redisstore"}},
	{"failover", []string{".", "driver", "internal/apart", "memstore"}},
	{"lease", []string{".", "driver", "internal/window", "memstore"}},
	{"stack/internal/...", []string{".", "driver"}},
	{"stack", []string{"driver", "failover", "lease", "memstore", "redisstore"}},
	{"httplimit", []string{".", "driver", "middleware"}},
	{"grpclimit", []string{".", "driver", "middleware"}},
	{"observe", []string{".", "driver"}},
	{"outgoing", []string{".", "driver"}},
	{"service/internal/replay/...", []string{".", "driver", "memstore", "httplimit", "middleware", "service/internal/replay/..."}},
	{"storetest", []string{".", "driver", "memstore"}},
	{"internal/redistest", []string{"redisstore"}},
	{"internal/modeltest/...", []string{"./..."}},
	{"internal/bench", []string{"./..."}},
	{"examples/...", []string{"./..."}},
	{"service/internal/yamlfile", nil},
	{"service/internal/config", []string{".", "driver", "failover", "service/internal/yamlfile"}},
	{"service/internal/decide", []string{".", "driver", "failover", "internal/apart", "service/internal/config"}},
	{"service/internal/cause", []string{"driver", "failover", "memstore", "redisstore"}},
	{"service/internal/stats", []string{".", "service/internal/config", "service/internal/cause", "service/internal/decide"}},
	{"service/internal/wire", []string{".", "failover", "service/internal/config", "service/internal/cause", "service/internal/decide"}},
	{"service/...", []string{"./..."}},
}

var sibling = layer{"", []string{".", "driver", "internal/apart", "internal/threshold", "internal/window"}}

func (l layer) allows(from, to string) bool {
	if to == from || strings.HasPrefix(to, from+"/") && from != "." {
		return true
	}
	return slices.ContainsFunc(l.imports, func(pattern string) bool { return matches(pattern, to) })
}

func matches(pattern, dir string) bool {
	base, below := strings.CutSuffix(pattern, "/...")
	return dir == base || below && (base == "." || strings.HasPrefix(dir, base+"/"))
}

func layerOf(pkg string) layer {
	for _, l := range layers {
		if matches(l.packages, pkg) {
			return l
		}
	}
	for top := path.Dir(pkg); top != "."; top = path.Dir(top) {
		for _, l := range layers {
			if l.packages == top { // the adapter's rules apply to the packages below it
				return l
			}
		}
	}
	return sibling
}

func TestImportsPointInward(t *testing.T) {
	for _, file := range goFiles(t, false) {
		layer := layerOf(file.pkg)
		for _, to := range file.imports {
			if to != "." && !strings.HasPrefix(to, "./") {
				continue // not of sash
			}
			to = path.Clean(to)
			if !layer.allows(file.pkg, to) {
				t.Errorf("%s: package %s must not import %s (it may import %s)", file.name, file.pkg, to, strings.Join(layer.imports, ", "))
			}
		}
	}
}

func TestOnlyTheServiceReadsTheEnvironmentAndLogs(t *testing.T) {
	free := []string{"service/...", "internal/redistest/...", "internal/bench", "internal/modeltest/...", "internal/size"}
	logs := []string{"observe"} // which writes decisions to the logger that it is given
	for _, file := range goFiles(t, false) {
		if slices.ContainsFunc(free, func(pattern string) bool { return matches(pattern, file.pkg) }) {
			continue
		}
		for _, p := range file.imports {
			if p == "log/slog" && slices.Contains(logs, file.pkg) {
				continue
			}
			if p == "log" || p == "log/slog" || p == "flag" {
				t.Errorf("%s imports %s: a library returns errors and takes options; logging and flags belong to the service", file.name, p)
			}
		}
		for _, call := range file.calls {
			switch call {
			case "os.Getenv", "os.LookupEnv", "os.Environ", "os.ExpandEnv", "os.Stdout", "os.Stderr", "os.Exit":
				t.Errorf("%s uses %s: only the service reads the environment and talks to a terminal", file.name, call)
			}
		}
	}
}

func TestTheRootModuleRequiresNothing(t *testing.T) {
	for _, req := range readMod(t, "go.mod").Require {
		t.Errorf("go.mod requires %s: what needs it belongs in a module of its own", req.Path)
	}
}

// A block is a fenced piece of a document.
type block struct {
	language string
	lines    []string
}

// blocks returns the fenced blocks of a document, named from the repository's root.
func blocks(t *testing.T, name string) (all []block) {
	t.Helper()
	inside := false
	for line := range strings.Lines(read(t, name)) {
		line = strings.TrimRight(line, "\n")
		if language, fence := strings.CutPrefix(strings.TrimSpace(line), "```"); fence {
			if inside = !inside; inside {
				all = append(all, block{language: language})
			}
		} else if inside {
			last := &all[len(all)-1]
			last.lines = append(last.lines, line)
		}
	}
	if inside {
		t.Errorf("%s: the last block has no end", name)
	}
	return all
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// documents returns README.md and what is in docs.
func documents(t *testing.T) (names []string) {
	t.Helper()
	walk(t, func(name string) {
		if name == "README.md" || strings.HasPrefix(name, "docs/") && strings.HasSuffix(name, ".md") {
			names = append(names, name)
		}
	})
	if !slices.Contains(names, "README.md") {
		t.Fatal("no README.md found: is the repository where this test looks?")
	}
	return names
}

// unindented is text without the indentation of its lines, with a line end before and after it, so that one
// text is found in another as whole lines.
func unindented(text string) string { return "\n" + indentation.ReplaceAllString(text, "") + "\n" }

var indentation = regexp.MustCompile(`(?m)^[ \t]+|[ \t]+$`)

// Code in documents is code of the repository, in most cases of an example, so that it compiles and, where
// the example has an output, runs. What a diff leaves in another language is of a program that make test-languages runs.
func TestCodeInDocumentsIsCompiled(t *testing.T) {
	var sources []string
	walk(t, func(name string) {
		if slices.Contains([]string{".go", ".js", ".java"}, path.Ext(name)) {
			sources = append(sources, unindented(read(t, name)))
		}
	})
	checked := 0
	for _, name := range documents(t) {
		for _, b := range blocks(t, name) {
			switch b.language {
			case "go":
			case "diff": // what the change leaves
				b.lines = slices.DeleteFunc(b.lines, func(line string) bool { return strings.HasPrefix(line, "-") })
				for i, line := range b.lines {
					b.lines[i] = strings.TrimPrefix(line, "+")
				}
			default:
				continue
			}
			checked++
			code := unindented(strings.Join(b.lines, "\n"))
			if !slices.ContainsFunc(sources, func(s string) bool { return strings.Contains(s, code) }) {
				t.Errorf("%s: no program has these lines: make them part of an example and copy them from there:\n%s",
					name, strings.Join(b.lines, "\n"))
			}
		}
	}
	if checked == 0 {
		t.Error("no code found in any document")
	}
}

var (
	madeInText  = regexp.MustCompile("`make ([a-z-]+)")
	madeInBlock = regexp.MustCompile(`^\s*make ([a-z-]+)`)
	target      = regexp.MustCompile(`(?m)^([a-z-]+):`)
)

func TestMakeTargetsInDocumentsExist(t *testing.T) {
	var targets []string
	for _, found := range target.FindAllStringSubmatch(read(t, "Makefile"), -1) {
		targets = append(targets, found[1])
	}
	checked := 0
	for _, name := range append(documents(t), "CONTRIBUTING.md") {
		named := madeInText.FindAllStringSubmatch(read(t, name), -1)
		for _, b := range blocks(t, name) {
			for _, line := range b.lines {
				if found := madeInBlock.FindStringSubmatch(line); found != nil {
					named = append(named, found)
				}
			}
		}
		for _, found := range named {
			checked++
			if !slices.Contains(targets, found[1]) {
				t.Errorf("%s: the Makefile has no target %s", name, found[1])
			}
		}
	}
	if checked == 0 {
		t.Error("no make command found in any document")
	}
}

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
