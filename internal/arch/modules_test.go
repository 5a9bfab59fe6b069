package arch_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
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
// those who require a module. The service takes what it verifies and decides with from judge and apart: it is a program, which is
// built with the versions that it requires.
var kits = []string{"./internal/apart", "./internal/judge", "./internal/redistest"}

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

const repository = "../.."

// A goFile is a file that is built into a package, with what it takes from elsewhere.
type goFile struct {
	name    string   // slash-separated, from the repository's root
	pkg     string   // directory from the repository's root; "." for the root package
	imports []string // packages of sash by directory, others by import path
	calls   []string // functions of package os that it names, such as "os.Getenv"
}

// modulePath returns the path of the root module.
func modulePath(t *testing.T) string {
	t.Helper()
	return readMod(t, "go.mod").Module.Path
}

type modFile struct {
	Module  struct{ Path string }
	Require []struct{ Path, Version string }
	Replace []replacement
}

type replacement struct {
	Old, New struct{ Path, Version string }
}

// readMod reads a go.mod, named from the repository's root.
func readMod(t *testing.T, name string) (mod modFile) {
	t.Helper()
	goTool(t, &mod, "mod", "edit", "-json", filepath.Join(repository, name))
	return mod
}

// goTool runs the go command and reads the JSON that it prints.
func goTool(t *testing.T, into any, args ...string) {
	t.Helper()
	out, err := exec.Command("go", args...).Output()
	if err != nil {
		t.Fatalf("go %s: %v", strings.Join(args, " "), err)
	}
	if err := json.Unmarshal(out, into); err != nil {
		t.Fatalf("go %s: %v", strings.Join(args, " "), err)
	}
}

// walk calls f for every file of the repository that is not hidden and not test data.
func walk(t *testing.T, f func(name string)) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(repository), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := path.Base(name)
		if d.IsDir() {
			if name != "." && (strings.HasPrefix(base, ".") || base == "testdata" || base == "bin") {
				return fs.SkipDir
			}
			return nil
		}
		f(name)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// goFiles returns every Go file of the repository, in the order of their names, with its tests or without.
func goFiles(t *testing.T, tests bool) []goFile {
	t.Helper()
	module := modulePath(t)
	var files []goFile
	walk(t, func(name string) {
		if strings.HasSuffix(name, ".go") && (tests || !strings.HasSuffix(name, "_test.go")) {
			files = append(files, parse(t, module, name))
		}
	})
	if len(files) == 0 {
		t.Fatal("no Go files found: is the repository where this test looks?")
	}
	return files
}

func parse(t *testing.T, module, name string) goFile {
	t.Helper()
	tree, err := parser.ParseFile(token.NewFileSet(), filepath.Join(repository, name), nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	file := goFile{name: name, pkg: path.Dir(name)}
	osName := ""
	for _, spec := range tree.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		if p == "os" {
			osName = "os"
			if spec.Name != nil {
				osName = spec.Name.Name
			}
		}
		if p == module {
			p = "."
		} else if dir, ok := strings.CutPrefix(p, module+"/"); ok {
			p = "./" + dir
		}
		file.imports = append(file.imports, p)
	}
	ast.Inspect(tree, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if id, ok := sel.X.(*ast.Ident); ok && osName != "" && id.Name == osName {
				file.calls = append(file.calls, "os."+sel.Sel.Name)
			}
		}
		return true
	})
	return file
}
