package htmlreport

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/replay"
)

// pageOf is a page about two clients, one of which has a key that looks like HTML.
func pageOf(t *testing.T, algorithm sash.Algorithm, limits ...sash.Limit) *Page {
	t.Helper()
	var b replay.Builder
	start := time.Date(2015, 5, 17, 10, 5, 3, 0, time.UTC).UnixMicro()
	for i := range int64(40) {
		b.Add(start+i*700_000, replay.Selection{Key: `<script>alert("x")</script>`, Cost: 1 + i%3, Route: "GET /<b>"})
		b.Add(start+i*5_000_000, replay.Selection{Key: "192.0.2.7", Cost: 1, Route: "GET /"})
	}
	trace := b.Trace()
	c := replay.Candidate{Limits: limits, Options: sash.Options{Algorithm: algorithm}, Retry: replay.HonourRetryAfter}
	outcomes, err := trace.Run(t.Context(), []replay.Candidate{c}, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := trace.Client(outcomes[0].WorstClients[0])
	moments, err := trace.Timeline(t.Context(), c, client)
	if err != nil {
		t.Fatal(err)
	}
	heat, err := trace.Heat(t.Context(), trace.Busiest(5), 30)
	if err != nil {
		t.Fatal(err)
	}
	caveats, err := trace.Caveats(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	p := &Page{
		Title: "A <title>", Summary: []string{"80 requests & more"}, Outcomes: outcomes, Heat: heat,
		Timeline: &Timeline{client, limits, algorithm, moments}, Caveats: caveats,
	}
	demands, err := trace.Demands(t.Context(), []replay.Candidate{c})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range demands {
		p.Demand = append(p.Demand, d.Report())
	}
	return p
}

var svgs = regexp.MustCompile(`(?s)<svg.*?</svg>`)

func TestThePageStandsAlone(t *testing.T) {
	for _, algorithm := range []sash.Algorithm{sash.SlidingLog, sash.FixedWindow} {
		p := pageOf(t, algorithm, sash.Every(10, 10*time.Second), sash.PerHour(50))
		var page bytes.Buffer
		if err := Write(&page, p); err != nil {
			t.Fatal(err)
		}
		text := page.String()
		for _, no := range []string{"<script", "<link", "src=", "@import", "url(", "<b>"} {
			if strings.Contains(text, no) {
				t.Errorf("%v: the page has %q", algorithm, no)
			}
		}
		for _, link := range regexp.MustCompile(`https?://[^"' ]+`).FindAllString(text, -1) {
			if !strings.HasPrefix(link, "http://www.w3.org/") { // names of XML, which are not fetched
				t.Errorf("%v: the page names %s", algorithm, link)
			}
		}
		plots := svgs.FindAllString(text, -1)
		if len(plots) != 4 {
			t.Fatalf("%v: %d plots, want the curve, the heat map and two windows", algorithm, len(plots))
		}
		for _, plot := range plots {
			decoder := xml.NewDecoder(strings.NewReader(plot))
			for {
				if _, err := decoder.Token(); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					t.Fatalf("%v: %v in %.200s", algorithm, err, plot)
				}
			}
		}
		if !strings.Contains(text, "&lt;script&gt;") || !strings.Contains(text, "10/10s, 50/1h") {
			t.Errorf("%v: the page lacks the candidate or the client", algorithm)
		}
	}
}

func TestPlotsOfVeryLittle(t *testing.T) {
	var b replay.Builder
	b.Add(1431857103_000000, replay.Selection{Key: "a", Cost: 1, Route: "GET /"})
	trace := b.Trace()
	limits := []sash.Limit{sash.PerCalendar(1, sash.CalendarDay, nil), sash.PerSecond(1)}
	moments, err := trace.Timeline(t.Context(), replay.Candidate{Limits: limits}, "a")
	if err != nil {
		t.Fatal(err)
	}
	demand, err := trace.Demand(t.Context(), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	heat, err := trace.Heat(t.Context(), []string{"a"}, 10)
	if err != nil {
		t.Fatal(err)
	}
	p := &Page{Demand: []replay.DemandReport{demand.Report()}, Heat: heat,
		Timeline: &Timeline{"a", limits, sash.SlidingLog, moments}}
	if err := Write(io.Discard, p); err != nil {
		t.Error(err)
	}
	if err := Write(io.Discard, &Page{}); err != nil {
		t.Error(err)
	}
}

// The window's units are those of the definition at every step: what was admitted in (t - window, t].
func TestTheTimelineIsTheDefinition(t *testing.T) {
	window := 10 * time.Second
	p := pageOf(t, sash.SlidingLog, sash.Every(10, window))
	first, last := p.Timeline.Moments[0].At, p.Timeline.Moments[len(p.Timeline.Moments)-1].At
	points := p.Timeline.used(0, first.Add(-time.Second), last.Add(time.Minute))
	for i, point := range points[:len(points)-1] {
		if points[i+1].X == point.X { // the last step at an instant counts
			continue
		}
		at := time.UnixMicro(int64(point.X*1e6 + 0.5))
		want := int64(0)
		for _, m := range p.Timeline.Moments {
			if m.Allowed && m.At.After(at.Add(-window)) && !m.At.After(at) {
				want += m.Cost
			}
		}
		if int64(point.Y) != want || want > 10 {
			t.Errorf("at %v: %v units, want %d", at, point.Y, want)
		}
	}
}
