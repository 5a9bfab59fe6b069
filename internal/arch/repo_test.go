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
	"strconv"
	"strings"
	"testing"
)

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
