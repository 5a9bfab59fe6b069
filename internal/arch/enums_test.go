package arch_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// An enum is an exported type of numbers with named values, such as driver.Algorithm.
type enum struct {
	values  []string // its constants
	strings bool     // whether it has a method String
}

// A log that prints Mode(1) or 1 sends its reader to the source. The names of type Mode are in modeNames, one for
// each constant.
func TestExportedEnumsPrintTheirNames(t *testing.T) {
	enums, names := map[string]*enum{}, map[string][]string{}
	walk(t, func(name string) {
		if strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") && !strings.Contains("/"+name, "/internal/") {
			collectEnums(t, name, enums, names)
		}
	})
	if len(enums) < 15 {
		t.Fatalf("found %d enums: is the repository where this test looks?", len(enums))
	}
	for _, of := range slices.Sorted(maps.Keys(enums)) {
		e := enums[of]
		if len(e.values) == 0 {
			continue // a number
		}
		dir, typeName := path.Split(of)
		texts := names[dir+strings.ToLower(typeName[:1])+typeName[1:]+"Names"]
		if !e.strings {
			t.Errorf("%s has no method String", of)
		} else if len(texts) != len(e.values) {
			t.Errorf("%s has %d constants and %d names: %v, %v", of, len(e.values), len(texts), e.values, texts)
		} else if slices.Sort(texts); len(slices.Compact(texts)) != len(texts) {
			t.Errorf("%s has a name twice: %v", of, texts)
		}
	}
}

// collectEnums adds the types of small numbers of a file to enums, by directory and type, and its lists of strings
// to names, by directory and variable.
func collectEnums(t *testing.T, name string, enums map[string]*enum, names map[string][]string) {
	t.Helper()
	tree, err := parser.ParseFile(token.NewFileSet(), filepath.Join(repository, name), nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	of := func(typeName string) *enum {
		key := path.Dir(name) + "/" + typeName
		if enums[key] == nil {
			enums[key] = &enum{}
		}
		return enums[key]
	}
	for _, decl := range tree.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok && f.Recv != nil && f.Name.Name == "String" {
			if id, ok := f.Recv.List[0].Type.(*ast.Ident); ok {
				of(id.Name).strings = true
			}
		}
		group, ok := decl.(*ast.GenDecl)
		if !ok {
			continue
		}
		typeName := "" // of the constants that follow one with a type
		for _, spec := range group.Specs {
			value, ok := spec.(*ast.ValueSpec)
			if !ok {
				continue
			}
			if group.Tok == token.VAR && len(value.Values) == 1 {
				if list, ok := value.Values[0].(*ast.CompositeLit); ok {
					names[path.Dir(name)+"/"+value.Names[0].Name] = texts(list)
				}
				continue
			}
			if id, ok := value.Type.(*ast.Ident); ok {
				typeName = id.Name
			} else if len(value.Values) > 0 {
				typeName = ""
			}
			if group.Tok == token.CONST && ast.IsExported(typeName) {
				of(typeName).values = append(of(typeName).values, value.Names[0].Name)
			}
		}
	}
}

// texts returns the literals of a list of strings, which may have indices.
func texts(list *ast.CompositeLit) (all []string) {
	for _, element := range list.Elts {
		if pair, ok := element.(*ast.KeyValueExpr); ok {
			element = pair.Value
		}
		if lit, ok := element.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			all = append(all, lit.Value)
		}
	}
	return all
}
