package htmlreport

import (
	"math"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"example.com/sash"
	"example.com/sash/service/internal/replay"
)

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

func FuzzNamesAreShownAsText(f *testing.F) {
	f.Add("a\u202e\xff\n<")
	f.Fuzz(func(t *testing.T, name string) {
		got := shown(name)
		if !utf8.ValidString(got) || utf8.RuneCountInString(got) > 10*201 {
			t.Fatalf("%q is shown as %q", name, got)
		}
		for _, r := range got {
			if !unicode.IsGraphic(r) {
				t.Fatalf("%q is shown with %U", name, r)
			}
		}
	})
}

// A log may name its clients and routes anything: the page shows it, and stays the page that it is.
func TestNamesFromALogChangeNothing(t *testing.T) {
	page := func(name, own string) string {
		var b replay.Builder
		for i := range int64(5) {
			b.Add(1431857103_000000+i, replay.Selection{Key: name, Cost: 1, Route: name})
		}
		trace := b.Trace()
		c := replay.Candidate{Limits: []sash.Limit{sash.PerMinute(1)}}
		outcomes, err := trace.Run(t.Context(), []replay.Candidate{c}, 5, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, moments, err := trace.Timeline(t.Context(), c, name)
		if err != nil {
			t.Fatal(err)
		}
		demand, err := trace.Demand(t.Context(), sash.PerMinute(1))
		if err != nil {
			t.Fatal(err)
		}
		heat, err := trace.Heat(t.Context(), []string{name}, 3)
		if err != nil {
			t.Fatal(err)
		}
		_, rest := write(t, &Page{
			Title: own, Summary: []string{own}, Inputs: []Input{{"Log", own}}, Command: own, Outcomes: outcomes, Caveats: []string{own},
			Demand: []*replay.Demand{demand}, Heat: heat, Timeline: &Timeline{name, c.Limits, sash.SlidingLog, moments},
		})
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
