//go:build browser

package main

import (
	"fmt"
	"html"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"

	"example.com/sash/service/internal/logs"
)

// openReport opens a report and waits until its charts are drawn: the course and the curve.
func openReport(t *testing.T, file string) *tab {
	t.Helper()
	page := openTab(t, "file://"+file)
	page.until(`document.documentElement.dataset.drawn === '2' && document.querySelectorAll('.plot svg').length === 2`)
	return page
}

// point moves the mouse to a part of an element, and returns the tooltip's lines.
func (p *tab) point(element string, across, down float64) string {
	p.t.Helper()
	p.text(`(` + element + `.scrollIntoView({ block: 'center' }), '')`)
	at := strings.Fields(p.text(fmt.Sprintf(`(({ x, y, width, height }) => (x + %g * width) + ' ' + (y + %g * height))(%s.getBoundingClientRect())`, across, down, element)))
	x, _ := strconv.ParseFloat(at[0], 64)
	y, _ := strconv.ParseFloat(at[1], 64)
	const tip = `[...document.querySelectorAll('.tip')].find((tip) => tip.checkVisibility({ visibilityProperty: true, opacityProperty: true }))`
	p.do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, 1, 1))
	p.until(tip + ` === undefined`) // that of another part has gone
	p.do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, x-1, y), chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, x, y))
	p.until(tip + ` !== undefined`)
	return p.text(`[...` + tip + `.children].map((line) => line.textContent).join('\n')`)
}

// fits checks that the page is no wider than the screen, and that no text of a chart is cut off.
func (p *tab) fits(width int) {
	p.t.Helper()
	p.until(fmt.Sprintf(`document.documentElement.scrollWidth <= %d`, width))
	if cut := p.text(`[...document.querySelectorAll('.plot svg')].flatMap((svg) => {
		const all = svg.getBoundingClientRect();
		return [...svg.querySelectorAll('text')].filter((text) => {
			const r = text.getBoundingClientRect();
			return !text.closest('[clip-path]') && r.width > 0 && (r.left < all.left - 1 || r.right > all.right + 1 || r.top < all.top - 1 || r.bottom > all.bottom + 1);
		}).map((text) => svg.parentElement.parentElement.id + ': ' + text.textContent);
	}).join('; ')`); cut != "" {
		p.t.Errorf("at %d wide texts are cut off: %s", width, cut)
	}
}

// The report works in a real browser: its numbers are those of the JSON, its charts have tooltips, and nothing is cut off,
// in the light and in the dark, on a desk and on a phone.
func TestBrowserShowsTheReport(t *testing.T) {
	log, file := realLog(t), filepath.Join(t.TempDir(), "report.html")
	code, out, failed := studies(t, "replay", "--try", "10/1m", "--try", "20/10s,75/1h", "--try", "9000/month@Europe/Paris", "--algorithm", "sliding-log,fixed-window", "--html", file, "--json", log)
	if code != 0 {
		t.Fatal(code, failed)
	}
	report := decode[struct {
		Demand []struct {
			Window string
			Curve  []struct {
				Units    int64
				Affected int `json:"clients_affected"`
			}
		}
		Candidates []struct {
			Limits  []string
			Refused int64
		}
	}](t, out)
	page := openReport(t, file)
	rows := strings.Split(page.text(`document.getElementById('candidates').innerHTML`), "<tr>")[2:]
	if len(rows) != len(report.Candidates) {
		t.Fatalf("%d rows for %d candidates: %s", len(rows), len(report.Candidates), rows)
	}
	grouped := func(n int64) string { return page.text(fmt.Sprintf(`(%d).toLocaleString('en-US')`, n)) }
	for i, c := range report.Candidates {
		want := fmt.Sprintf("<td>%s <", grouped(c.Refused))
		if !strings.Contains(rows[i], html.EscapeString(strings.Join(c.Limits, ", "))) || !strings.Contains(rows[i], want) {
			t.Errorf("row %d has not %v or no %q: %s", i, c.Limits, want, rows[i])
		}
	}
	page.fits(1280)

	// The tooltip of a limit has the clients that it affects in every window, as the JSON has them.
	lines := strings.Split(page.point(`document.getElementById('curve')`, 0.4, 0.5), "\n")
	text, _, _ := strings.Cut(strings.TrimPrefix(lines[0], "a limit of "), " ")
	units, err := strconv.ParseInt(text, 10, 64)
	if err != nil || units < 2 || len(lines) < 1+len(report.Demand) {
		t.Fatalf("the tooltip is %q", lines)
	}
	for i, d := range report.Demand {
		affected := 0
		for _, p := range d.Curve {
			if p.Units <= units {
				affected = p.Affected
			}
		}
		if want := fmt.Sprintf("in any %s: %s client", d.Window, grouped(int64(affected))); !strings.HasPrefix(lines[1+i], want) {
			t.Errorf("line %d of the tooltip is %q, want %q", i, lines[1+i], want)
		}
	}
	for _, try := range []string{"10/1m", "20/10s", "75/1h", "9000/month@Europe/Paris"} { // marked on the curve
		page.until(`[...document.querySelectorAll('#curve svg text')].some((text) => text.textContent === '` + try + `')`)
	}
	page.until(`['none', '0.1%', '1%', '10%', '100%'].every((label) => [...document.querySelectorAll('#curve svg text')].some((text) => text.textContent === label))`)
	if tip := page.point(`document.getElementById('course')`, 0.5, 0.3); !strings.Contains(tip, ":00:00 UTC") || !strings.Contains(tip, " refused by 10/1m by sliding-log") {
		t.Errorf("the tooltip of the course is %q", tip)
	}

	page.scheme("dark")
	page.until(`getComputedStyle(document.body).backgroundColor === 'rgb(20, 24, 29)'`)
	page.do(chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile))
	page.until(`document.querySelector('#curve svg').clientWidth < 390`)
	page.fits(390)
	page.accessible("report")
}

// The whole access log lies beside the repository, and a sample of it inside.
const (
	wholeLog  = "../../../../shared/data/apache_access.log"
	sampleLog = "../../testdata/access_log_sample.log"
)

func realLog(t *testing.T) string {
	t.Helper()
	if _, err := os.Stat(wholeLog); err != nil {
		t.Logf("the whole log is absent (%v): using the sample", err)
		return sampleLog
	}
	return wholeLog
}

func studies(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err strings.Builder
	code = logs.Run(args, strings.NewReader(""), &out, &err)
	return code, out.String(), err.String()
}
