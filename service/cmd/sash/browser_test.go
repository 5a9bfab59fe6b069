//go:build browser

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// browse opens a page in headless Chromium, and returns its DOM after scripts and styles, and its console.
func browse(t *testing.T, page string, more ...string) (dom, console string) {
	t.Helper()
	args := append([]string{"--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr",
		"--user-data-dir=" + t.TempDir(), "--window-size=1100,3000"}, more...)
	cmd := exec.CommandContext(t.Context(), "chromium", append(args, "file://"+page)...)
	var out, err bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &err
	if failed := cmd.Run(); failed != nil {
		t.Fatalf("chromium: %v\n%s", failed, err.String())
	}
	for line := range strings.Lines(err.String()) {
		if strings.Contains(line, ":CONSOLE") || strings.Contains(line, "Refused to") {
			console += line
		}
	}
	return out.String(), console
}

// The report renders in a real browser without warnings, and its numbers are those of the JSON.
func TestBrowserShowsTheReport(t *testing.T) {
	log := wholeLog
	if _, err := os.Stat(log); err != nil {
		log = sampleLog
	}
	dir := t.TempDir()
	page, picture := filepath.Join(dir, "report.html"), filepath.Join(dir, "report.png")
	code, out, failed := sash(t, nil, "replay", "--try", "10/1m", "--try", "20/10s,75/1h", "--algorithm", "sliding-log,fixed-window", "--html", page, "--json", log)
	if code != 0 {
		t.Fatal(code, failed)
	}
	var report struct {
		Candidates []struct {
			Limits         []string
			Refused        int64
			ClientsLimited int64   `json:"clients_limited"`
			RefusedShare   float64 `json:"refused_share"`
		}
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatal(err)
	}
	dom, console := browse(t, page, "--dump-dom")
	if console != "" {
		t.Errorf("the console: %s", console)
	}
	_, table, _ := strings.Cut(dom, `<table id="candidates">`)
	table, _, _ = strings.Cut(table, "</table>")
	rows := strings.Split(table, "<tr>")[2:]
	if len(rows) != len(report.Candidates) {
		t.Fatalf("%d rows for %d candidates: %s", len(rows), len(report.Candidates), table)
	}
	for i, c := range report.Candidates {
		for _, want := range []string{
			html.EscapeString(strings.Join(c.Limits, ", ")), fmt.Sprintf("<td>%d <", c.Refused),
			fmt.Sprintf("(%.2f%%)", 100*c.RefusedShare), fmt.Sprintf("<td>%d <", c.ClientsLimited),
		} {
			if !strings.Contains(rows[i], want) {
				t.Errorf("row %d has no %q: %s", i, want, rows[i])
			}
		}
	}
	if n := strings.Count(dom, "<svg"); n != 3 {
		t.Errorf("%d plots, want the curve, the heat map and the window", n)
	}
	if _, console = browse(t, page, "--screenshot="+picture); console != "" {
		t.Errorf("the console: %s", console)
	}
	shown, err := os.Open(picture)
	if err != nil {
		t.Fatal(err)
	}
	defer shown.Close()
	image, err := png.Decode(shown)
	if err != nil {
		t.Fatal(err)
	}
	colors := make(map[[3]uint32]int)
	for y := 0; y < image.Bounds().Dy(); y += 2 {
		for x := 0; x < image.Bounds().Dx(); x += 2 {
			r, g, b, _ := image.At(x, y).RGBA()
			colors[[3]uint32{r >> 8, g >> 8, b >> 8}]++
		}
	}
	for what, color := range map[string][3]uint32{"the curve's line": {0, 114, 178}, "the window's band": {255, 236, 179}, "the page": {246, 247, 249}} {
		if colors[color] < 20 {
			t.Errorf("the picture does not show %s", what)
		}
	}
}
