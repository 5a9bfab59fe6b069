// Package arch has no code, only tests: who may import whom in this repository, what its modules require, and what its
// documents say. Tests may import any package that is not internal to another module.
package arch_test

import (
	"path"
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
	{".", []string{"driver"}},
	{"goredisstore", []string{".", "driver", "redisstore"}},
	{"rueidisstore", []string{".", "driver", "redisstore"}},
	{"lease", []string{".", "driver", "internal/window", "memstore"}},
	{"stack/internal/...", []string{".", "driver"}},
	{"stack", []string{"driver", "failover", "lease", "memstore", "redisstore"}},
	{"httplimit", []string{".", "driver", "middleware"}},
	{"grpclimit", []string{".", "driver", "middleware"}},
	{"observe", []string{".", "driver"}},
	{"outgoing", []string{".", "driver"}},
	{"service/internal/replay/...", []string{".", "driver", "memstore", "httplimit", "service/internal/replay/..."}},
	{"storetest", []string{".", "driver", "memstore"}},
	{"internal/redistest", []string{"redisstore"}},
	{"internal/modeltest/...", []string{"./..."}},
	{"internal/bench", []string{"./..."}},
	{"examples/...", []string{"./..."}},
	{"service/internal/config", []string{".", "driver", "failover"}},
	{"service/internal/decide", []string{".", "driver", "failover", "memstore", "redisstore", "service/internal/config"}},
	{"service/internal/stats", []string{".", "service/internal/config", "service/internal/decide"}},
	{"service/internal/wire", []string{".", "service/internal/config", "service/internal/decide", "service/internal/stats"}},
	{"service/...", []string{"./..."}},
}

var sibling = layer{"", []string{".", "driver", "internal/threshold", "internal/window"}}

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
