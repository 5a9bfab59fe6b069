// Package htmlreport writes the results of a replay as one HTML file, with tables and charts. The page embeds
// Apache ECharts and loads nothing. Its content security policy allows only its own scripts.
package htmlreport

import (
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.com/sash"
	"example.com/sash/service/internal/replay"
	"example.com/sash/service/internal/replay/htmlreport/internal/echarts"
)

// A Page is the contents of a report. Names may contain any bytes: the page shows them as text.
type Page struct {
	// Verdict says whether the log can be trusted, and Warnings say why not.
	Verdict  string
	Warnings []replay.Warning
	// Read describes how the log was read, and Command is the shell command that creates the report again.
	Read    []string
	Command string
	// Client is the word for a limited party, such as client or network.
	Client string
	Demand []*replay.Demand
	// Outcomes are the rows of the table of candidates.
	Outcomes []*replay.Outcome
	// Traffic is all requests over time.
	Traffic replay.Course
	Caveats []string
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
	"words":     words,
	"step":      func(d time.Duration) string { return replay.WindowName(sash.Limit{Window: d}) },
	"candidate": called,
	"name":      shown,
	"text":      visible,
	"n":         Number,
}).Parse(source))

// Write writes the page. After an error, the page may be incomplete.
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
	}{
		Page: p, Style: template.CSS(style), Library: template.JS(library), Script: template.JS(script),
		Policy: fmt.Sprintf("default-src 'none'; script-src %s %s; style-src %s; base-uri 'none'; form-action 'none'", hash(library), hash(script), hash(style)),
		Charts: charts{Noun: p.Client + "s", Traffic: p.Traffic, Refused: p.refused(), Curve: p.curve()},
	}
	return page.Execute(w, view)
}

// hash returns the source expression that allows exactly this text in a content security policy.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// shown returns a name from a log as the page shows it: without invisible characters, and at most 200 characters long.
func shown(name string) string {
	if runes := []rune(name); len(runes) > 200 {
		return visible(string(runes[:200])) + "…"
	}
	return visible(name)
}

// visible escapes what is invisible in a text, as in a Go string: control characters, marks that change the
// direction of the text, and invalid UTF-8. It does not escape HTML.
func visible(text string) string {
	quoted := strconv.QuoteToGraphic(text)
	return strings.NewReplacer(`\\`, `\`, `\"`, `"`).Replace(quoted[1 : len(quoted)-1])
}

// Number writes a number with a comma between thousands, as the page does.
func Number(n int64) string {
	if -1000 < n && n < 1000 {
		return strconv.FormatInt(n, 10)
	}
	return fmt.Sprintf("%s,%03d", Number(n/1000), max(n%1000, -(n%1000)))
}

// charts is the data that report.js draws. Times are milliseconds since the epoch.
type charts struct {
	Noun    string        `json:"noun"`
	Traffic replay.Course `json:"traffic"`
	Refused []refused     `json:"refused"`
	Curve   *curve        `json:"curve,omitempty"`
}

type refused struct {
	Candidate string `json:"candidate"`
	replay.Course
}

func (p *Page) refused() []refused {
	all := []refused{}
	for _, o := range p.Outcomes {
		if o.Refused > 0 {
			all = append(all, refused{called(o) + " by " + o.Algorithm, o.Refusals})
		}
	}
	return all
}

func called(o *replay.Outcome) string { return shown(cmp.Or(o.Policy, strings.Join(o.Limits, ", "))) }

var per = regexp.MustCompile(`([0-9])/`) // of a limit

func words(o *replay.Outcome) string {
	return shown(cmp.Or(o.Policy, "At most "+per.ReplaceAllString(strings.Join(o.Limits, " and "), "$1 in ")))
}

// A curve shows the number of affected clients over the limit, with one line for each window.
type curve struct {
	Lines []line `json:"lines"`
	Tried []mark `json:"tried"`
}

type line struct {
	Window string         `json:"window"`
	Points []replay.Point `json:"points"`
}

type mark struct {
	Limit string `json:"limit"`
	Line  int    `json:"line"`
	replay.Point
}

const columns = 500 // of a chart

func (p *Page) curve() *curve {
	if len(p.Demand) == 0 {
		return nil
	}
	c := &curve{Tried: []mark{}}
	for _, o := range p.Outcomes {
		for _, limit := range o.Limits {
			text, window, _ := strings.Cut(limit, "/")
			units, err := strconv.ParseInt(text, 10, 64)
			i := slices.IndexFunc(p.Demand, func(d *replay.Demand) bool { return d.Window == window })
			known := slices.ContainsFunc(c.Tried, func(m mark) bool { return m.Limit == limit })
			if err == nil && !known && i >= 0 {
				n, all := p.Demand[i].Affected(units), len(p.Demand[i].Peaks)
				c.Tried = append(c.Tried, mark{limit, i, replay.Point{Units: units, Affected: n, Share: float64(n) / float64(all)}})
			}
		}
	}
	for _, d := range p.Demand {
		width := math.Log(float64(d.Curve[len(d.Curve)-1].Units))
		column := func(p replay.Point) int { return int(columns * math.Log(float64(p.Units)) / width) }
		c.Lines = append(c.Lines, line{d.Window, thin(d.Curve, column)})
	}
	return c
}

// thin removes the points of a falling curve that a chart cannot show. It keeps the first and the last point of each column.
func thin(curve []replay.Point, column func(replay.Point) int) (some []replay.Point) {
	if len(curve) <= 2*columns {
		return curve
	}
	for i, p := range curve {
		inside := i > 0 && i < len(curve)-1
		if !inside || column(p) != column(curve[i-1]) || column(p) != column(curve[i+1]) {
			some = append(some, p)
		}
	}
	return some
}
