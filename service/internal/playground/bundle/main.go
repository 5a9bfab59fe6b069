// Command bundle writes the playground's page: one file with the limiter, compiled to WebAssembly.
//
//	go run ./internal/playground/bundle internal/playground/playground.html
package main

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const source = "internal/playground"

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: bundle FILE")
	}
	page, err := bundle()
	if err == nil {
		err = os.WriteFile(os.Args[1], page, 0o644)
	}
	if err != nil {
		log.Fatal("bundle: ", err)
	}
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
	to, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression) // which is a level
	_, err = to.Write(core)
	err = errors.Join(err, to.Close())
	return packed.Bytes(), err
}
