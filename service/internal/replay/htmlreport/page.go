// Package htmlreport writes the results of a replay as one self-contained HTML file: the figures in tables, and charts by
// Apache ECharts, which stands in the page. A page loads nothing, and its policy lets no script run but its own.
package htmlreport

import (
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"strconv"
	"strings"
	"time"

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
	Demand  []*replay.Demand
	// Outcomes are the rows of the table of candidates.
	Outcomes []*replay.Outcome
	Heat     replay.Heat
	Caveats  []string
}

// An Input is a line of the table of inputs, such as the key and its expression.
type Input struct{ Name, Text string }

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
	"candidate": func(o *replay.Outcome) string { return shown(cmp.Or(o.Policy, strings.Join(o.Limits, ", "))) },
	"name":      shown,
	"text":      visible,
	"n":         Number,
	"count":     func(n int) string { return Number(int64(n)) },
}).Parse(source))

// Noun is what the page calls the clients, in the plural.
func (p *Page) Noun() string { return cmp.Or(p.Clients, "clients") }

// One is what the page calls a client.
func (p *Page) One() string { return strings.TrimSuffix(p.Noun(), "s") }

// Write writes the page. After an error a part of it may be written.
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
		Step            time.Duration
	}{
		Page: p, Style: template.CSS(style), Library: template.JS(library), Script: template.JS(script),
		Policy: fmt.Sprintf("default-src 'none'; script-src %s %s; style-src %s; base-uri 'none'; form-action 'none'", hash(library), hash(script), hash(style)),
		Charts: charts{Noun: p.Noun(), Curve: p.curve(), Heat: p.heat()}, Step: p.Heat.Step.Round(max(time.Millisecond, min(time.Second, p.Heat.Step/100))),
	}
	return page.Execute(w, view)
}

// hash returns the source of a content security policy that is exactly this text.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// shown returns a name from a log as a page can show it: visible, and at most 200 characters.
func shown(name string) string {
	const most = 200
	n := 0
	for i := range name {
		if n++; n > most {
			return visible(name[:i]) + "…"
		}
	}
	return visible(name)
}

// visible returns text in which what is not visible (controls, marks that turn the direction of the text, bytes that are
// no UTF-8) is written as in a Go string. It does not escape HTML.
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
