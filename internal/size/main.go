// Command size prints how large the repository is. Run it in the root of a checkout, after make build: make size.
package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"os/exec"
	"path"
	"regexp"
	"strings"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "size:", err)
		os.Exit(1)
	}
}

func run() error {
	list, err := exec.Command("git", "ls-files").Output()
	if err != nil {
		return err
	}
	var code, tests, words, modules, identifiers int
	public := map[string]bool{}
	for _, name := range strings.Fields(string(list)) {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // removed, and not yet committed
		}
		hidden := strings.Contains("/"+name, "/internal/") || strings.Contains("/"+name, "/testdata/") ||
			strings.Contains("/"+name, "/cmd/") || strings.HasPrefix(name, "examples/")
		switch dir := path.Dir(name); {
		case strings.HasSuffix(name, "_test.go"):
			tests += bytes.Count(text, []byte("\n"))
		case strings.HasSuffix(name, ".go"):
			code += bytes.Count(text, []byte("\n"))
			if !hidden && dir != "service" {
				public[dir] = true
				n, err := exported(name, text)
				if err != nil {
					return err
				}
				identifiers += n
			}
		case strings.HasSuffix(name, ".md"):
			words += len(strings.Fields(string(text)))
		case path.Base(name) == "go.mod" && !hidden && !strings.HasPrefix(name, "."):
			modules++
		}
	}
	deps, err := exec.Command("go", "list", "-deps", "./service/cmd/sash").Output()
	if err != nil {
		return err
	}
	help, err := exec.Command("bin/sash", "serve", "--help").Output()
	if err != nil {
		return fmt.Errorf("bin/sash: %w (make build)", err)
	}
	flags := regexp.MustCompile(`(?m)^ +--[a-z-]+`).FindAll(help, -1) // without -h, --help
	for _, row := range []struct {
		what      string
		now, most int
	}{
		{"lines of Go outside tests", code, 52_000}, {"lines of Go of tests", tests, 60_000}, {"words of Markdown", words, 45_000},
		{"public packages", len(public), 15}, {"published modules", modules, 8}, {"exported identifiers", identifiers, 1_000},
		{"flags of sash serve", len(flags), 30}, {"words of its help", len(strings.Fields(string(help))), 900},
		{"packages of sash", len(strings.Fields(string(deps))), 430},
	} {
		fmt.Printf("%-26s %7d  (at most %d)\n", row.what, row.now, row.most)
	}
	return nil
}

// exported counts the exported names of a file: those of packages, methods, fields, and methods of interfaces.
func exported(name string, text []byte) (n int, err error) {
	file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution)
	if err != nil {
		return 0, err
	}
	ast.FileExports(file)
	count := func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.ValueSpec:
			n += len(node.Names)
		case *ast.Field:
			n += len(node.Names)
		case *ast.FuncType:
			return false // its parameters
		}
		return true
	}
	for _, declaration := range file.Decls {
		switch d := declaration.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil || ast.IsExported(strings.TrimPrefix(types.ExprString(d.Recv.List[0].Type), "*")) {
				n++
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if t, ok := spec.(*ast.TypeSpec); ok {
					n++
					ast.Inspect(t.Type, count) // without its parameters
				} else {
					ast.Inspect(spec, count)
				}
			}
		}
	}
	return n, nil
}
