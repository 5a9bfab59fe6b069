package arch_test

import (
	"path"
	"slices"
	"strings"
	"testing"
)

// modules returns the directories of all modules, from the repository's root: "." is the root module.
func modules(t *testing.T) (dirs []string) {
	t.Helper()
	walk(t, func(name string) {
		if path.Base(name) == "go.mod" {
			dirs = append(dirs, path.Dir(name))
		}
	})
	return dirs
}

// published reports whether others can require the module of a directory.
func published(dir string) bool {
	return !strings.HasPrefix(dir, "internal/") && !strings.HasPrefix(dir, "examples/")
}

// moduleOf returns the directory of the module that a package belongs to.
func moduleOf(dirs []string, pkg string) string {
	for !slices.Contains(dirs, pkg) {
		pkg = path.Dir(pkg)
	}
	return pkg
}

type workFile struct {
	Use     []struct{ DiskPath string }
	Replace []replacement
}

func readWork(t *testing.T) (work workFile) {
	t.Helper()
	goTool(t, &work, "work", "edit", "-json", repository+"/go.work")
	return work
}

func TestEveryModuleIsInTheWorkspace(t *testing.T) {
	var used []string
	for _, use := range readWork(t).Use {
		used = append(used, path.Clean(use.DiskPath))
	}
	for _, dir := range modules(t) {
		if !slices.Contains(used, dir) {
			t.Errorf("module %s is not in go.work, so nothing builds or tests it: run go work use ./%s", dir, dir)
		}
	}
}

// What one module requires of another is what a user downloads, so it is a released version or the next one, the same
// everywhere. A replace line of a module has no effect for its users; those of go.work join the checkout.
func TestModulesRequireEachOtherAtOneVersion(t *testing.T) {
	module := modulePath(t)
	joined := map[string]string{} // module path to the version that go.work takes from the checkout
	for _, r := range readWork(t).Replace {
		if path.Join(module, r.New.Path) != r.Old.Path {
			t.Errorf("go.work replaces %s with %s, where another module is", r.Old.Path, r.New.Path)
		}
		joined[r.Old.Path] = r.Old.Version
	}
	version := joined[module]
	if version == "" {
		t.Fatalf("go.work has no line replace %s VERSION => ./", module)
	}
	for _, dir := range modules(t) {
		if at := joined[path.Join(module, dir)]; published(dir) && at != version {
			t.Errorf("go.work takes module %s from the checkout at version %q, want %s as for the root module", dir, at, version)
		}
		mod := readMod(t, path.Join(dir, "go.mod"))
		for _, req := range mod.Require {
			if own := req.Path == module || strings.HasPrefix(req.Path, module+"/"); own && req.Version != version {
				t.Errorf("%s/go.mod requires %s %s, want %s as in go.work", dir, req.Path, req.Version, version)
			}
		}
		for _, r := range mod.Replace {
			t.Errorf("%s/go.mod replaces %s: join modules in go.work", dir, r.Old.Path)
		}
	}
}

// kits are the packages of the root module that every module shares. The tests are built here, at one commit, and never by
// those who require a module. What judge has for service, which verifies with it, is released with it.
var kits = []string{"./internal/judge", "./internal/redistest"}

// Modules have versions of their own, and what is internal changes without notice. So a module that imports what is
// internal to another one does not build with the next version of that one. Tests may import the kits. Examples import
// nothing internal but the server that they run on: users copy them.
func TestNoPublishedModuleImportsWhatIsInternalToAnother(t *testing.T) {
	dirs := modules(t)
	for _, file := range goFiles(t, true) {
		from := moduleOf(dirs, file.pkg)
		if !published(from) {
			continue
		}
		for _, imported := range file.imports {
			if !strings.HasPrefix(imported, "./") || !strings.Contains(imported+"/", "/internal/") {
				continue
			}
			if strings.HasPrefix(path.Base(file.name), "example") && imported != "./internal/redistest" && !strings.Contains("/"+file.pkg+"/", "/internal/") {
				t.Errorf("%s: an example must not import %s", file.name, imported)
			}
			if to := moduleOf(dirs, path.Clean(imported)); to != from && !slices.Contains(kits, imported) {
				t.Errorf("%s: module %s must not import %s, which is internal to module %s", file.name, from, imported, to)
			}
		}
	}
}
