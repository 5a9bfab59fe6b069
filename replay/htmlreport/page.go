// Package htmlreport writes the results of a replay as one self-contained HTML file: the figures in tables, and plots as
// inline SVG. It has no scripts and loads nothing.
package htmlreport

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
	"time"

	"example.com/sash"
	"example.com/sash/replay"
)

// A Page is the contents of a report. Names of clients are written unchanged.
type Page struct {
	// Title and Summary are the head of the page.
	Title   string
	Summary []string
	Demand  []replay.DemandReport
	// Outcomes are the rows of the table of candidates.
	Outcomes []*replay.Outcome
	Heat     replay.Heat
	// Classes are the names of the classes in the outcomes' days, beginning with class 1.
	Classes []string
	// Timeline is left out if nil.
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
	"percent":   func(share float64) string { return fmt.Sprintf("%.2f%%", 100*share) },
	"time":      func(seconds float64) string { return time.Duration(seconds * 1e9).Round(time.Second).String() },
	"candidate": candidateName,
	"clock": func(at string) string { // formats a time of RFC 3339
		_, clock, _ := strings.Cut(at, "T")
		return clock[:min(len(clock), len("15:04:05"))]
	},
}).Parse(source))

// candidateName returns the name of a candidate.
func candidateName(o *replay.Outcome) string {
	if o.Policy != "" {
		return o.Policy
	}
	name := strings.Join(o.Limits, ", ")
	if o.Shares != nil {
		name += ", reserve"
	}
	return name
}

// Class returns the name of a class of requests.
func (p *Page) Class(number uint8) string {
	switch {
	case number > 0 && int(number) <= len(p.Classes):
		return p.Classes[number-1]
	case len(p.Classes) > 0:
		return "all others"
	}
	return "all"
}

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
	var all bytes.Buffer // nothing is written after an error
	if err := page.Execute(&all, view); err != nil {
		return err
	}
	_, err = w.Write(all.Bytes())
	return err
}
