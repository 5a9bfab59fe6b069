package htmlreport

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"html"
	"io"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"example.com/sash"
	"example.com/sash/service/internal/replay"
	"example.com/sash/service/internal/replay/htmlreport/internal/echarts"
	"example.com/sash/service/internal/servertest"
)

// pageOf is a page about two clients, one of which has a key that looks like HTML.
func pageOf(t *testing.T, algorithm sash.Algorithm, limits ...sash.Limit) *Page {
	var b replay.Builder
	start := time.Date(2015, 5, 17, 10, 5, 3, 0, time.UTC).UnixMicro()
	for i := range int64(40) {
		b.Add(start+i*700_000, replay.Selection{Key: `<script>alert("x")</script>`, Cost: 1 + i%3, Route: "GET /<b>"})
		b.Add(start+i*5_000_000, replay.Selection{Key: "192.0.2.7", Cost: 1, Route: "GET /"})
	}
	return drawn(t, &b, "A <title>", replay.Candidate{Limits: limits, Options: sash.Options{Algorithm: algorithm}})
}

// drawn is a page about requests and a candidate, with some text in all places that take one.
func drawn(t *testing.T, b *replay.Builder, own string, c replay.Candidate) *Page {
	t.Helper()
	trace := b.Trace()
	p := &Page{Client: "client", Verdict: own, Warnings: []replay.Warning{{Text: own}}, Read: []string{own}, Command: own}
	var err error
	if p.Outcomes, err = trace.Run([]replay.Candidate{c}, 5, nil); err != nil {
		t.Fatal(err)
	}
	p.Traffic = trace.Course(func(int) bool { return true })
	p.Demand, p.Caveats = trace.Demands([]replay.Candidate{c}), trace.Caveats(c)
	p.Caveats = append(p.Caveats, own)
	return p
}

// write returns the page as text, and what it is without the library, the script and the style, which are the same in every page.
func write(t *testing.T, p *Page) (text, rest string) {
	t.Helper()
	var all bytes.Buffer
	servertest.Check(t, Write(&all, p))
	library := servertest.Must(echarts.Script())(t)
	text, rest = all.String(), all.String()
	for _, own := range []string{library, script, style} {
		if strings.Count(rest, own) != 1 {
			t.Fatalf("the page has %d times %.60q", strings.Count(rest, own), own)
		}
		rest = strings.Replace(rest, own, "", 1)
	}
	return text, rest
}

func TestThePageStandsAlone(t *testing.T) {
	for _, algorithm := range []sash.Algorithm{sash.SlidingLog, sash.FixedWindow} {
		_, text := write(t, pageOf(t, algorithm, sash.Every(10, 10*time.Second), sash.PerHour(50)))
		for _, no := range []string{"<link", "src=", "@import", "url(", "<b>", "://", "<style>b", "onload"} {
			if strings.Contains(text, no) {
				t.Errorf("%v: the page has %q", algorithm, no)
			}
		}
		if strings.Count(text, "<script") != 3 || strings.Count(text, "<script></script>") != 2 || strings.Count(text, `<script type="application/json" id="data">`) != 1 {
			t.Errorf("%v: the page has other scripts than the library, its own and its numbers", algorithm)
		}
		if n := strings.Count(text, `<div class="plot"`); n != 2 {
			t.Errorf("%v: %d charts, want the course and the curve", algorithm, n)
		}
		if !strings.Contains(text, "&lt;script&gt;") || !strings.Contains(text, "10/10s, 50/1h") {
			t.Errorf("%v: the page lacks the candidate or the client", algorithm)
		}
	}
}

// The policy of the page lets a browser run and apply exactly what the page brings, and load nothing.
func TestThePolicyIsThatOfThePage(t *testing.T) {
	text, _ := write(t, pageOf(t, sash.SlidingLog, sash.PerMinute(10)))
	policy := html.UnescapeString(regexp.MustCompile(`http-equiv="Content-Security-Policy" content="([^"]*)"`).FindStringSubmatch(text)[1])
	want := "default-src 'none'; script-src"
	for _, tags := range []string{`(?s)<script>(.*?)</script>`, `(?s)<style>(.*?)</style>`} {
		for _, inline := range regexp.MustCompile(tags).FindAllStringSubmatch(text, -1) {
			sum := sha256.Sum256([]byte(inline[1]))
			want += " 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
		}
		if strings.Contains(tags, "script") {
			want += "; style-src"
		}
	}
	if want += "; base-uri 'none'; form-action 'none'"; policy != want {
		t.Errorf("the policy is\n%s\nwant\n%s", policy, want)
	}
}

// The numbers of the charts are those of the replay.
func TestTheChartsHaveTheNumbers(t *testing.T) {
	p := pageOf(t, sash.SlidingLog, sash.Every(10, 10*time.Second), sash.PerHour(50))
	p.Client = "network"
	_, text := write(t, p)
	var got charts
	data := regexp.MustCompile(`(?s)id="data">(.*?)</script>`).FindStringSubmatch(text)[1]
	servertest.Check(t, json.Unmarshal([]byte(data), &got))
	if strings.Contains(data, "null") || strings.Contains(data, "<") {
		t.Errorf("the numbers have a list that is null, or HTML: %s", data)
	}
	if got.Noun != "networks" || !strings.Contains(text, "networks limited") || strings.Contains(text, "clients limited") {
		t.Errorf("the networks are called %s", got.Noun)
	}
	for i, d := range p.Demand {
		if l := got.Curve.Lines[i]; l.Window != d.Window || !slices.Equal(l.Points, d.Curve) {
			t.Errorf("line %d is %v, want %v", i, l, d.Curve)
		}
	}
	// One client had at most 29 units in ten seconds and both had 40 and 80 in the hour of the log.
	if len(got.Curve.Tried) != 2 || got.Curve.Tried[0].Limit != "10/10s" || got.Curve.Tried[0].Affected != 1 || got.Curve.Tried[1].Line != 1 || got.Curve.Tried[1].Units != 50 || got.Curve.Tried[1].Affected != 1 {
		t.Errorf("the limits that were tried are %+v", got.Curve.Tried)
	}
	// 40 requests in 28 seconds and 40 in 195, in steps of a second.
	if c := got; c.Traffic.Step != time.Second || c.Traffic.Start.Unix() != 1431857103 || len(c.Traffic.Counts) != 196 || sum(c.Traffic.Counts) != 80 ||
		len(c.Refused) != 1 || sum(c.Refused[0].Counts) != p.Outcomes[0].Refused || c.Refused[0].Candidate != "10/10s, 50/1h by sliding-log" {
		t.Errorf("the course is %+v, %+v", c.Traffic, c.Refused)
	}
}

func sum(counts []int64) (n int64) {
	for _, c := range counts {
		n += c
	}
	return n
}

// The page opens with whether the log can be trusted, and what each candidate is and does, in words. Then come the clients that
// it refuses, and who they are. What it was made from comes last.
func TestThePageOpensWithTheProposalInWords(t *testing.T) {
	p := pageOf(t, sash.SlidingLog, sash.Every(10, 10*time.Second), sash.PerCalendar(9000, sash.CalendarMonth, nil))
	o := p.Outcomes[0]
	o.WorstClients[0].Crawler, o.WorstClients[0].Statuses, o.WorstClients[0].UserAgent = "Googlebot", "200 97%, 404 3%", "Moz</div>illa"
	_, text := write(t, p)
	text = strings.Join(strings.Fields(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(text[strings.Index(text, "<main>"):], " ")), " ")
	at := 0
	for _, want := range []string{
		"What these limits would have done A &lt;title&gt; A &lt;title&gt; At most 10 in 10s and 9000 in month@UTC for each client, by sliding-log, would have refused " +
			Number(o.Refused) + " of 80 requests",
		"of 1 client (50.00%), the first at " + o.FirstRefused, "Who would be refused",
		"alert(&#34;x&#34;)&lt;/script&gt; Googlebot answered 200 97%, 404 3% Moz&lt;/div&gt;illa ", "Refusals and traffic over time", "steps of 1s",
		"Limits and the clients they affect", "What the log cannot show", "How this was made", "Make this report again",
	} {
		next := strings.Index(text[at:], want)
		if next < 0 {
			t.Fatalf("behind %.80q there is no %q", text[at:], want)
		}
		at += next
	}
}

func TestPlotsOfVeryLittle(t *testing.T) {
	var b replay.Builder
	b.Add(1431857103_000000, replay.Selection{Key: "a", Cost: 1, Route: "GET /"})
	little := drawn(t, &b, "", replay.Candidate{Limits: []sash.Limit{sash.PerCalendar(1, sash.CalendarDay, nil), sash.PerSecond(1)}})
	for _, p := range []*Page{little, {}} {
		if err := Write(io.Discard, p); err != nil {
			t.Error(err)
		}
	}
}

func TestNamesAreShownAsText(t *testing.T) {
	for name, want := range map[string]string{
		"192.0.2.7":                   "192.0.2.7",
		`DOMAIN\name "n"`:             `DOMAIN\name "n"`,
		"":                            "",
		"été 日本 مرحبا":                "été 日本 مرحبا",
		"a\u202egnp.exe":              `a\u202egnp.exe`, // turns the direction of the text
		"a\x00b\x1b[31m\n":            `a\x00b\x1b[31m\n`,
		"\xff\xfe":                    `\xff\xfe`,
		"\u200bzero":                  `\u200bzero`,
		strings.Repeat("ä", 200):      strings.Repeat("ä", 200),
		strings.Repeat("ä", 1000):     strings.Repeat("ä", 200) + "…",
		`<script>alert("x")</script>`: `<script>alert("x")</script>`, // the page's template escapes HTML
	} {
		if got := shown(name); got != want {
			t.Errorf("%q is shown as %q, want %q", name, got, want)
		}
	}
}

// A log may name its clients and routes anything: the page shows it, and stays the page that it is.
func TestNamesFromALogChangeNothing(t *testing.T) {
	page := func(name, own string) string {
		var b replay.Builder
		for i := range int64(5) {
			b.Add(1431857103_000000+i, replay.Selection{Key: name, Cost: 1, Route: name})
		}
		_, rest := write(t, drawn(t, &b, own, replay.Candidate{Limits: []sash.Limit{sash.PerMinute(1)}}))
		return rest
	}
	plain := page("plain", "plain")
	for _, name := range []string{
		`</script><script>alert(1)</script>`, `<!--<script>`, `"><img src=x onerror=alert(1)>`, `'-alert(1)-'`, "\u2028\u2029", "]]>", "</title><b>", `{{.Title}}`, "</style>",
	} {
		got := page(name, name)
		for _, tag := range []string{"<script", "</script", "<img", "<b>", "<!--", "</title", "</style", "<table", "<"} {
			if strings.Count(got, tag) != strings.Count(plain, tag) {
				t.Errorf("with clients named %q the page has %d times %s, want %d", name, strings.Count(got, tag), tag, strings.Count(plain, tag))
			}
		}
	}
	for _, name := range []string{"\xff\xfe\x00", "a\u202eb"} {
		if got := page(name, name); !utf8.ValidString(got) || strings.ContainsRune(got, '\u202e') {
			t.Errorf("with clients named %q the page is not plain UTF-8", name)
		}
	}
	if got := page(strings.Repeat("long", 10_000), "own"); len(got) > len(plain)+20_000 {
		t.Errorf("with a client whose name has 40,000 bytes the page has %d bytes, want about %d", len(got), len(plain))
	}
}

func TestNumbersHaveSeparators(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", -1000: "-1,000", 1234567: "1,234,567", math.MaxInt64: "9,223,372,036,854,775,807", math.MinInt64: "-9,223,372,036,854,775,808"} {
		if got := Number(n); got != want {
			t.Errorf("%d is written %s, want %s", n, got, want)
		}
	}
}

// A limit is marked with the clients that it refuses, and a curve of many points is drawn with few.
func TestAMarkIsOnTheCurve(t *testing.T) {
	p := &Page{Demand: []*replay.Demand{{Window: "1m"}}, Outcomes: []*replay.Outcome{{Limits: []string{"70001/1m", "5/1h"}}}}
	for i := range 200_000 { // a year of ten thousand clients takes as little of the page as any other log
		p.Demand[0].Curve = append(p.Demand[0].Curve, replay.Point{Units: int64(1 + i), Affected: 200_000 - i, Share: 1 - float64(i)/200_000})
		p.Demand[0].Peaks = append(p.Demand[0].Peaks, int64(2+i))
	}
	c := p.curve()
	if points := c.Lines[0].Points; len(points) > 2*(columns+1) || len(points) < columns || points[len(points)-1].Affected != 1 {
		t.Errorf("%d points to %v", len(points), points[len(points)-1])
	}
	if len(c.Tried) != 1 || c.Tried[0].Units != 70_001 || c.Tried[0].Affected != 130_000 || c.Tried[0].Share != 0.65 {
		t.Errorf("%+v", c.Tried)
	}
}
