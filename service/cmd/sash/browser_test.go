//go:build browser

package main

import (
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"

	"example.com/sash/service/internal/logs"
)

// openReport opens a report and waits until its charts are drawn: the curve and the heat map.
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

// cell is a script for a cell of the heat map, in a row.
func cell(row int) string {
	return fmt.Sprintf(`((cells) => {
		const top = (cell) => Math.round(cell.getBoundingClientRect().top);
		const rows = [...new Set(cells.map(top))].sort((a, b) => a - b);
		return cells.find((cell) => top(cell) === rows[%d]);
	})([...document.querySelectorAll('#heat svg path[fill^="rgb("]')])`, row)
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
	if tip := page.point(cell(3), 0.6, 0.6); !strings.Contains(tip, " unit") || !strings.Contains(tip, " from 2015-05-") {
		t.Errorf("the tooltip of a cell is %q", tip)
	}

	page.scheme("dark")
	page.until(`getComputedStyle(document.body).backgroundColor === 'rgb(20, 24, 29)'`)
	page.do(chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile))
	page.until(`document.querySelector('#curve svg').clientWidth < 390`)
	page.fits(390)
	page.shoot("dark-phone")
}

// intruder adds what a page could hold that a name got into, and counts what the policy refuses.
const intruder = `(() => {
  const url = %q;
  window.refused = 0;
  document.addEventListener('securitypolicyviolation', () => window.refused++);
  for (const [tag, more] of [['script', { textContent: "document.title = 'taken'" }], ['style', { textContent: 'h1 { display: none }' }],
    ['script', { src: url + '/script' }], ['img', { src: url + '/image' }]]) document.body.append(Object.assign(document.createElement(tag), more));
  fetch(url + '/fetch').catch(() => {});
  return '';
})()`

// Clients may be named anything. The page shows their names as text, runs nothing of them, and reaches nobody.
func TestBrowserReportOfHostileNames(t *testing.T) {
	names := []string{
		`<script>document.title='taken'</script>`, `</script><script>document.title='taken'</script>`, `<img src=x onerror=document.title='taken'>`,
		`'-(document.title='taken')-'`, "\u202egnp.exe", "\xff\xfe\x01", strings.Repeat("long", 2000), "مرحبا بالعالم", "{{7*7}}", "<b>",
	}
	var lines strings.Builder
	for i, name := range names {
		for j := range 20 - i {
			fmt.Fprintf(&lines, "192.0.2.7 - - [20/Nov/2026:10:%02d:%02d +0000] \"GET /%s HTTP/1.1\" 200 1 \"-\" \"%s\"\n", i, j, strings.ReplaceAll(name, " ", "+"), name)
		}
	}
	log, file := tempFile(t, "access.log", lines.String()), filepath.Join(t.TempDir(), "report.html")
	code, out, failed := studies(t, "replay", "--try", "3/1m", "--key", "user_agent", "--worst", "20", "--html", file, log)
	if code != 0 || !strings.Contains(out, "155 requests of 10 clients") {
		t.Fatal(code, out, failed)
	}
	page := openReport(t, file)
	// Its own 3 scripts, and no element of a name.
	const own = `document.title === 'What these limits would have done' && document.querySelectorAll('img, iframe, object, embed, link, b:not(.tip > b), script').length === 3`
	page.until(own)
	for i, want := range []string{names[0], names[1], names[2], names[3], `\u202egnp.exe`, `\xff\xfe\x01`, strings.Repeat("long", 50) + "…", names[7], names[8], names[9]} {
		tip := page.point(cell(i), 0.5, 0.5)
		if name, _, _ := strings.Cut(tip, "\n"); name != want {
			t.Errorf("the tooltip of client %d names %q, want %q", i, name, want)
		}
		page.until(own)
	}
	page.fits(1280)

	// What would get into the page all the same could not run, nor reach anybody.
	reached := make(chan string, 10)
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { reached <- r.URL.Path }))
	t.Cleanup(other.Close)
	page.deaf.Store(true) // refusals stand in the console
	page.text(fmt.Sprintf(intruder, other.URL))
	page.until(`window.refused === 5 && document.querySelector('h1').checkVisibility()`)
	page.until(`document.title !== 'taken'`)
	if len(reached) > 0 {
		t.Errorf("the page reached %s", <-reached)
	}
}

// The whole access log lies beside the repository, and a sample of it inside.
const (
	wholeLog  = "../../../../shared/data/apache_access.log"
	sampleLog = "../../testdata/access_log_sample.log"
)

// realLog returns the name of the log that is there.
func realLog(t *testing.T) string {
	t.Helper()
	if _, err := os.Stat(wholeLog); err != nil {
		t.Logf("the whole log is absent (%v): using the sample", err)
		return sampleLog
	}
	return wholeLog
}

// studies runs a command of sash-logs in this process.
func studies(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err strings.Builder
	code = logs.Run(args, strings.NewReader(""), &out, &err)
	return code, out.String(), err.String()
}
