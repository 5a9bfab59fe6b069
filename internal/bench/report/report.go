// Package report collects the figures, tables and plots of a run and writes them as a page of Markdown.
package report

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/template"
	"time"
)

// Config says how much to measure.
type Config struct {
	Rounds       int           // alternating rounds of every figure
	ClientRounds int           // the same where a client decides
	Calls        int           // decisions in a round where the server's time is measured
	Turn         time.Duration // how long a contender decides through a client in a round
	Window       time.Duration // of the limit whose worst window is searched for
	Keys         int           // the most keys, where keys grow
	Quick        bool          // check that everything runs
}

// A Report is the page of one run.
type Report struct {
	Config
	Progress io.Writer // receives a line before each measurement
	Dir      string    // receives the plots; empty discards them
	Redis    string    // version of the redis-server, empty until one has run

	targets Table
	body    bytes.Buffer
}

// New returns an empty report.
func New(cfg Config, progress io.Writer) *Report {
	return &Report{Config: cfg, Progress: progress, targets: NewTable("target", "wanted", "measured", "met")}
}

// Say reports progress.
func (r *Report) Say(format string, args ...any) {
	fmt.Fprintf(r.Progress, "%s %s\n", time.Now().Format(time.TimeOnly), fmt.Sprintf(format, args...))
}

// AtMost records a target that the measured figure must not exceed.
func (r *Report) AtMost(want, measured float64, name string) {
	r.target("≤", want, measured, measured <= want, name)
}

// AtLeast records a target that the measured figure must reach.
func (r *Report) AtLeast(want, measured float64, name string) {
	r.target("≥", want, measured, measured >= want, name)
}

func (r *Report) target(bound string, want, measured float64, reached bool, name string) {
	met := "no"
	if reached {
		met = "yes"
	}
	r.targets.Row(name, fmt.Sprintf("%s %.5g", bound, want), Number(measured), met)
}

// Add executes a template of Markdown and adds the result to the page. The template also finds the
// configuration, as .Config.
func (r *Report) Add(text string, data map[string]any) error {
	return r.execute(&r.body, text, data)
}

// Page returns the page: the head, in which .Targets is the table of all targets, and what Add has added.
func (r *Report) Page(head string, data map[string]any) (string, error) {
	var page strings.Builder
	data["Targets"] = r.targets
	err := r.execute(&page, head, data)
	return page.String() + r.body.String(), err
}

func (r *Report) execute(w io.Writer, text string, data map[string]any) error {
	page, err := template.New("page.md").Option("missingkey=error").Parse(text)
	if err != nil {
		return err
	}
	data["Config"] = r.Config
	return page.Execute(w, data)
}

// Plot draws a plot into a file of the directory, in SVG.
func (r *Report) Plot(file string, p Plot) error {
	var picture bytes.Buffer
	if err := p.WriteSVG(&picture); err != nil || r.Dir == "" {
		return err
	}
	return os.WriteFile(filepath.Join(r.Dir, file), picture.Bytes(), 0o644)
}
