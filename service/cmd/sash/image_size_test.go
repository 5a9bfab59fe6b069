package main

import (
	"debug/buildinfo"
	"os"
	"os/exec"
	"strings"
	"testing"

	"example.com/sash/internal/redistest"
)

// The binary of the image serves, and has no charts, plots, fonts, PDF, terminals and expressions.
func TestTheBinaryOfTheImageIsSmall(t *testing.T) {
	const most = 25_000_000
	compile := exec.CommandContext(t.Context(), "make", "-C", "../../..", "static")
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("make static: %v\n%s", err, out)
	}
	const server = "../../../bin/image/sash"
	file, err := os.Stat(server)
	if err != nil {
		t.Fatal(err)
	}
	if file.Size() > most {
		t.Errorf("%d bytes, more than %d", file.Size(), most)
	}
	info, err := buildinfo.ReadFile(server)
	if err != nil {
		t.Fatal(err)
	}
	outside := 0
	for _, dep := range info.Deps {
		if !strings.HasPrefix(dep.Path, "example.com/sash") {
			outside++
		}
		for _, word := range []string{"sash/replay", "plot", "fonts", "pdf", "svg", "freetype", "charm", "progressbar", "x/term", "expr"} {
			if strings.Contains(dep.Path, word) {
				t.Errorf("it has %s", dep.Path)
			}
		}
	}
	if outside > 60 {
		t.Errorf("%d modules from outside, more than 60", outside)
	}

	redis := redistest.Start(t)
	for line, want := range map[string]string{
		"--help":                         "sash doctor",
		"doctor --redis " + redis.Addr(): "to repair",
		"allow --limit 1/1h k --redis " + redis.Addr(): "allowed",
		"replay access.log":                            "go install",
		"serve --config /none --addr 127.0.0.1:0":      "/none",
		"/bin/ratelimit":                               "/srv/runtime_data",
	} {
		cmd := exec.CommandContext(t.Context(), server, strings.Fields(line)...)
		if out, _ := cmd.CombinedOutput(); !strings.Contains(string(out), want) { // some end with an error, which has the text
			t.Errorf("sash %s: %q, without %q", line, out, want)
		}
	}
}
