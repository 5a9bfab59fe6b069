// Command bundle writes the playground's page: one file with the limiter, compiled to WebAssembly.
//
//	go run ./internal/playground/bundle internal/playground/playground.html
package main

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
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
	check(os.WriteFile(os.Args[1], bundle(), 0o644))
}

func check(err error) {
	if err != nil {
		log.Fatal("bundle: ", err)
	}
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func bundle() []byte {
	root := must(exec.Command("go", "env", "GOROOT").Output())
	page := "<!-- Built by `make playground` from service/internal/playground. -->\n<!--index.html-->"
	for _, part := range []struct{ mark, file string }{
		{"<!--index.html-->", filepath.Join(source, "page", "index.html")},
		{"/*style.css*/", filepath.Join(source, "page", "style.css")},
		{"/*app.js*/", filepath.Join(source, "page", "app.js")},
		{"/*wasm_exec.js*/", filepath.Join(strings.TrimSpace(string(root)), "lib", "wasm", "wasm_exec.js")},
	} {
		page = strings.Replace(page, part.mark, strings.TrimSpace(string(must(os.ReadFile(part.file)))), 1)
	}
	return []byte(strings.Replace(page, "/*core*/", base64.StdEncoding.EncodeToString(compile()), 1) + "\n")
}

func compile() []byte {
	dir := must(os.MkdirTemp("", "playground-"))
	defer func() { _ = os.RemoveAll(dir) }()
	out := filepath.Join(dir, "core.wasm")
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -buildid=", "-o", out, "./"+source+"/wasm")
	build.Env, build.Stderr = append(os.Environ(), "GOOS=js", "GOARCH=wasm", "CGO_ENABLED=0"), os.Stderr
	check(build.Run())
	var packed bytes.Buffer
	to := must(gzip.NewWriterLevel(&packed, gzip.BestCompression))
	must(to.Write(must(os.ReadFile(out))))
	check(to.Close())
	return packed.Bytes()
}
