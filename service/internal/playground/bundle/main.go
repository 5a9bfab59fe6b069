// Command bundle writes the playground's page: one file with the limiter, compiled to WebAssembly.
//
//	go run ./internal/playground/bundle internal/playground/playground.html
package main

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const source = "internal/playground"

func main() {
	if len(os.Args) != 2 {
		fail(fmt.Errorf("usage: bundle FILE"))
	}
	page, err := bundle()
	if err != nil {
		fail(err)
	}
	if err := os.WriteFile(os.Args[1], page, 0o644); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "bundle:", err)
	os.Exit(1)
}

func bundle() ([]byte, error) {
	core, err := compile()
	if err != nil {
		return nil, err
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, err
	}
	page := "<!-- Built by `make playground` from service/internal/playground. -->\n<!--index.html-->"
	for _, part := range []struct{ mark, file string }{
		{"<!--index.html-->", filepath.Join(source, "page", "index.html")},
		{"/*style.css*/", filepath.Join(source, "page", "style.css")},
		{"/*app.js*/", filepath.Join(source, "page", "app.js")},
		{"/*wasm_exec.js*/", filepath.Join(strings.TrimSpace(string(root)), "lib", "wasm", "wasm_exec.js")},
	} {
		text, err := os.ReadFile(part.file)
		if err != nil {
			return nil, err
		}
		page = strings.Replace(page, part.mark, strings.TrimSpace(string(text)), 1)
	}
	return []byte(strings.Replace(page, "/*core*/", base64.StdEncoding.EncodeToString(core), 1) + "\n"), nil
}

// compile returns the limiter, compressed.
func compile() ([]byte, error) {
	dir, err := os.MkdirTemp("", "playground-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	out := filepath.Join(dir, "core.wasm")
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -buildid=", "-o", out, "./"+source+"/wasm")
	build.Env, build.Stderr = append(os.Environ(), "GOOS=js", "GOARCH=wasm", "CGO_ENABLED=0"), os.Stderr
	if err := build.Run(); err != nil {
		return nil, err
	}
	core, err := os.ReadFile(out)
	if err != nil {
		return nil, err
	}
	var packed bytes.Buffer
	to, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := to.Write(core); err != nil {
		return nil, err
	}
	if err := to.Close(); err != nil {
		return nil, err
	}
	return packed.Bytes(), nil
}
