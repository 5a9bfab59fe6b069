package arch_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// A log that prints 1 for an exported type of named numbers sends its reader to the source: each has a method String.
func TestExportedEnumsPrintTheirNames(t *testing.T) {
	prints, enums := map[string]bool{}, map[string]bool{} // by directory and type
	walk(t, func(name string) {
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || strings.Contains("/"+name, "/internal/") {
			return
		}
		tree, err := parser.ParseFile(token.NewFileSet(), filepath.Join(repository, name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv != nil && n.Name.Name == "String" {
					if id, ok := n.Recv.List[0].Type.(*ast.Ident); ok {
						prints[path.Dir(name)+"."+id.Name] = true
					}
				}
				return false
			case *ast.ValueSpec:
				id, ok := n.Type.(*ast.Ident)
				if call, is := first(n.Values).(*ast.Ident); ok && is && call.Name == "iota" && id.IsExported() {
					enums[path.Dir(name)+"."+id.Name] = true
				}
			}
			return true
		})
	})
	for of := range enums {
		if !prints[of] {
			t.Errorf("%s has no method String", of)
		}
	}
	if len(enums) == 0 {
		t.Error("no enum found: is the repository where this test looks?")
	}
}

func first(values []ast.Expr) ast.Expr {
	if len(values) == 0 {
		return nil
	}
	if sum, ok := values[0].(*ast.BinaryExpr); ok { // iota + 1
		return sum.X
	}
	return values[0]
}
