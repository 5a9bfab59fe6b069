// Package htmlreport writes the results of a replay as one self-contained HTML file: the figures in tables, and charts by
// Apache ECharts, which stands in the page. A page loads nothing, and its policy lets no script run but its own.
package htmlreport

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
	"time"

	"example.com/sash"
	"example.com/sash/service/internal/replay"
	"example.com/sash/service/internal/replay/htmlreport/internal/echarts"
)

// A Page is the contents of a report. Names may have any bytes: the page shows them as text.
type Page struct {
	// Title and Summary are the head of the page.
	Title   string
	Summary []string
	// Inputs is what the report was made from, and Command is the command that makes it again, for a shell. They are left
	// out if empty.
	Inputs  []Input
	Command string
	// Clients is the plural for those whom the limits hold, such as networks. Empty means clients.
	Clients string
	Demand  []replay.DemandReport
	// Outcomes are the rows of the table of candidates.
	Outcomes []*replay.Outcome
	Heat     replay.Heat
	// Timeline is left out if nil.
	Timeline *Timeline
	Caveats  []string
}

// An Input is a line of the table of inputs, such as the key and its expression.
type Input struct{ Name, Text string }

// A Timeline is the requests of one client under a candidate.
type Timeline struct {
	Client    string
	Limits    []sash.Limit
	Algorithm sash.Algorithm
	Moments   []replay.Moment
}

var (
	//go:embed page.html
	source string
	//go:embed style.css
	style string
	//go:embed report.js
	script string
)

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"percent":   func(share float64) string { return fmt.Sprintf("%.2f%%", 100*share) },
	"time":      func(seconds float64) string { return time.Duration(seconds * 1e9).Round(time.Second).String() },
	"candidate": candidateName,
	"name":      shown,
	"text":      visible,
	"n":         Number,
	"count":     func(n int) string { return Number(int64(n)) },
	"bytes":     size,
	"utc":       func(at time.Time) string { return at.UTC().Format("2006-01-02 15:04:05.999") },
}).Parse(source))

// candidateName returns the name of a candidate.
func candidateName(o *replay.Outcome) string {
	if o.Policy != "" {
		return shown(o.Policy)
	}
	return strings.Join(o.Limits, ", ")
}

// size writes a number of bytes.
func size(n int64) string {
	switch {
	case n >= 10_000_000:
		return Number(n/1_000_000) + " MB"
	case n >= 10_000:
		return Number(n/1000) + " kB"
	}
	return Number(n) + " B"
}

// Noun is what the page calls the clients, in the plural.
func (p *Page) Noun() string {
	return cmp.Or(p.Clients, "clients")
}

// One is what the page calls a client.
func (p *Page) One() string { return strings.TrimSuffix(p.Noun(), "s") }

// Refused reports whether the client was ever refused.
func (t *Timeline) Refused() bool {
	return slices.ContainsFunc(t.Moments, func(m replay.Moment) bool { return !m.Allowed })
}

// Slides reports whether any limit has a sliding window.
func (t *Timeline) Slides() bool {
	return slices.ContainsFunc(t.Limits, func(l sash.Limit) bool { return l.Period == 0 })
}

// Write writes the page.
func Write(w io.Writer, p *Page) error {
	library, err := echarts.Script()
	if err != nil {
		return err
	}
	view := struct {
		*Page
		Policy          string
		Style           template.CSS
		Library, Script template.JS
		Charts          charts
		Busy            []busy
		Step            time.Duration
	}{
		Page: p, Style: template.CSS(style), Library: template.JS(library), Script: template.JS(script),
		Policy: fmt.Sprintf("default-src 'none'; script-src %s %s; style-src %s; base-uri 'none'; form-action 'none'", hash(library), hash(script), hash(style)),
		Charts: charts{Noun: p.Noun(), Curve: p.curve()}, Step: p.Heat.Step.Round(max(time.Millisecond, min(time.Second, p.Heat.Step/100))),
	}
	view.Charts.Heat, view.Busy = p.heat()
	if t := p.Timeline; t != nil && len(t.Moments) > 0 {
		for i := range t.Limits {
			view.Charts.Windows = append(view.Charts.Windows, t.chart(i))
		}
	}
	var all bytes.Buffer // nothing is written after an error
	if err := page.Execute(&all, view); err != nil {
		return err
	}
	_, err = w.Write(all.Bytes())
	return err
}

// hash returns the source of a content security policy that is exactly this text.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
