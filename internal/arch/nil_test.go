package arch_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// Every exported function of the library that takes an interface or a limiter is called in a test with one that is nil: in the file
// nil_test.go of its module. Those of package driver are for authors of stores, who have one.
func TestEveryConstructorIsTestedWithNil(t *testing.T) {
	type function struct{ module, name string }
	takes := make(map[function][]string) // types of parameters
	interfaces := map[string]bool{"sash.Limiter": true}
	all := modules(t)
	for _, file := range goFiles(t, false) {
		module := moduleOf(all, file.pkg)
		if !published(module) || module == "service" || strings.Contains(file.pkg, "internal") || strings.Contains(file.pkg, "testdata") {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), filepath.Join(repository, file.name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range tree.Decls {
			switch d := d.(type) {
			case *ast.GenDecl:
				for _, s := range d.Specs {
					if s, ok := s.(*ast.TypeSpec); ok {
						_, is := s.Type.(*ast.InterfaceType)
						interfaces[tree.Name.Name+"."+s.Name.Name] = is || interfaces[tree.Name.Name+"."+s.Name.Name]
					}
				}
			case *ast.FuncDecl:
				if d.Recv != nil || !d.Name.IsExported() || strings.HasPrefix(file.name, "driver/") {
					continue
				}
				f := function{module, tree.Name.Name + "." + d.Name.Name}
				for _, p := range d.Type.Params.List {
					takes[f] = append(takes[f], nameOf(tree.Name.Name, p.Type))
				}
			}
		}
	}
	for _, external := range []string{"redis.UniversalClient", "rueidis.Client", "metric.MeterProvider", "trace.TracerProvider", "http.RoundTripper"} {
		interfaces[external] = true
	}
	found := 0
	for f, types := range takes {
		text, _ := os.ReadFile(filepath.Join(repository, path.Join(f.module, "nil_test.go")))
		for _, name := range types {
			if !interfaces[name] {
				continue
			}
			found++
			if called := strings.Contains(string(text), f.name+"(") || strings.Contains(string(text), f.name+"["); !called {
				t.Errorf("%s takes a %s: call it in %s/nil_test.go with one that is nil, also with a type (see driver.Nil)", f.name, name, f.module)
			}
		}
	}
	if found < 20 {
		t.Errorf("%d constructors were found", found)
	}
}

// nameOf returns the name of a parameter's type with its package.
func nameOf(pkg string, e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return pkg + "." + e.Name
	case *ast.SelectorExpr:
		return e.X.(*ast.Ident).Name + "." + e.Sel.Name
	case *ast.StarExpr:
		return nameOf(pkg, e.X)
	case *ast.Ellipsis:
		return nameOf(pkg, e.Elt)
	}
	return ""
}
