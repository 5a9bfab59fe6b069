// Package htmlreport writes what a replay found as one HTML file that needs nothing else: the figures in
// tables, and plots as SVG in the page. It has no script, and loads nothing.
package htmlreport

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"
	"time"

	"example.com/sash"
	"example.com/sash/replay"
)

// A Page is what is written. Names of clients in it are written as they are.
type Page struct {
	// Title and Summary are the head of the page.
	Title   string
	Summary []string
	Demand  []replay.DemandReport
	// Outcomes are listed in a table.
	Outcomes []*replay.Outcome
	Heat     replay.Heat
	// Timeline is left out when it is nil.
	Timeline *Timeline
	Caveats  []string
}

// A Timeline is the requests of one client under a candidate.
type Timeline struct {
	Client    string
	Limits    []sash.Limit
	Algorithm sash.Algorithm
	Moments   []replay.Moment
}

//go:embed page.html
var source string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"percent": func(share float64) string { return fmt.Sprintf("%.2f%%", 100*share) },
	"time":    func(seconds float64) string { return time.Duration(seconds * 1e9).Round(time.Second).String() },
	"join":    func(all []string) string { return strings.Join(all, ", ") },
}).Parse(source))

// Write writes the page.
func Write(w io.Writer, p *Page) error {
	view := struct {
		*Page
		Curve, Heatmap template.HTML
		Windows        []template.HTML
	}{Page: p}
	var err error
	if len(p.Demand) > 0 {
		if view.Curve, err = curve(p.Demand); err != nil {
			return err
		}
	}
	if len(p.Heat.Clients) > 0 {
		if view.Heatmap, err = heatmap(p.Heat); err != nil {
			return err
		}
	}
	if t := p.Timeline; t != nil {
		for i := range t.Limits {
			plot, err := t.plot(i)
			if err != nil {
				return err
			}
			view.Windows = append(view.Windows, plot)
		}
	}
	var all bytes.Buffer // an error leaves no half page
	if err := page.Execute(&all, view); err != nil {
		return err
	}
	_, err = w.Write(all.Bytes())
	return err
}
