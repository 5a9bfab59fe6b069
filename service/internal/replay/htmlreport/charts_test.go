package htmlreport

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/service/internal/replay"
)

// What a curve says of a limit is what the replay counts, between the limits of the curve too.
func TestAMarkIsOnTheCurve(t *testing.T) {
	var b replay.Builder
	for client, peak := range []int{1, 3, 3, 8, 20, 500} {
		for i := range peak {
			b.Add(1431857103_000000+int64(i), replay.Selection{Key: string(rune('a' + client)), Cost: 1})
		}
	}
	d := b.Trace().Demand(sash.PerMinute(1))
	p := &Page{Demand: []*replay.Demand{{Window: "1m"}}, Outcomes: []*replay.Outcome{{Limits: []string{"70001/1m", "5/1h"}}}}
	for i := range 200_000 { // a year of ten thousand clients takes as little of the page as any other log
		p.Demand[0].Curve = append(p.Demand[0].Curve, replay.Point{Units: int64(1 + i), Affected: 200_000 - i, Share: 1 - float64(i)/200_000})
	}
	c := p.curve()
	if points := c.Lines[0].Points; len(points) > 2*(columns+1) || len(points) < columns || points[len(points)-1].Affected != 1 {
		t.Errorf("%d points to %v", len(points), points[len(points)-1])
	}
	if len(c.Tried) != 1 || c.Tried[0].Affected != 130_000 {
		t.Errorf("%+v", c.Tried)
	}
	for units := int64(1); units < 600; units++ {
		if got := at(d.Curve, units); got.Affected != d.Affected(units) || got.Units != units {
			t.Fatalf("a limit of %d affects %d, want %d", units, got.Affected, d.Affected(units))
		}
	}
}

// A chart of many calls shows what all its steps would: nothing that is higher, lower, earlier or later is left out.
func TestThinStepsAreDrawnAlike(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var steps []point
	for x := 0.0; x < 3600; x += random.ExpFloat64() / 50 {
		steps = append(steps, point{1e9 + x, float64(random.IntN(1000))})
	}
	column := func(p point) int { return int((p[0] - 1e9) / 3600 * columns) }
	some := thin(steps, column, func(p point) float64 { return p[1] })
	if len(some) > 4*(columns+1) || len(steps) < 100_000 {
		t.Fatalf("%d of %d steps", len(some), len(steps))
	}
	type extent struct{ low, high float64 }
	extents := func(all []point) map[int]extent {
		m := make(map[int]extent)
		for _, s := range all {
			if e, ok := m[column(s)]; ok {
				m[column(s)] = extent{min(e.low, s[1]), max(e.high, s[1])}
			} else {
				m[column(s)] = extent{s[1], s[1]}
			}
		}
		return m
	}
	if !maps.Equal(extents(steps), extents(some)) {
		t.Error("the extents of columns differ")
	}
	if some[0] != steps[0] || some[len(some)-1] != steps[len(steps)-1] {
		t.Errorf("the steps go from %v to %v", some[0], some[len(some)-1])
	}
	if !slices.IsSortedFunc(some, func(a, b point) int { return cmp.Compare(a[0], b[0]) }) {
		t.Error("a step is before the one before it")
	}
}

func TestManyRefusedCallsAreFewMarks(t *testing.T) {
	var times []time.Time
	for i := range 20_000 {
		times = append(times, noon.Add(time.Duration(i)*time.Millisecond))
	}
	c := asked(t, replay.Candidate{Limits: []sash.Limit{sash.PerMinute(1)}}, times...).chart(0)
	marked := 0.0
	for _, r := range c.Refused {
		marked += r[1]
	}
	if len(c.Refused) > columns || marked != 19_999 || c.Count != 19_999 || c.Most != 1 {
		t.Errorf("%d marks of %v calls, %d counted; at most %d units", len(c.Refused), marked, c.Count, c.Most)
	}
}

// asked is the timeline of a client that requests a unit at each of the given times.
func asked(t *testing.T, c replay.Candidate, times ...time.Time) *Timeline {
	t.Helper()
	var b replay.Builder
	for _, at := range times {
		b.Add(at.UnixMicro(), replay.Selection{Key: "a", Cost: 1, Route: "GET /"})
	}
	_, moments, err := b.Trace().Timeline(c, "a")
	if err != nil {
		t.Fatal(err)
	}
	return &Timeline{"a", c.Limits, c.Options.Algorithm, moments}
}

var noon = time.Date(2015, 5, 17, 12, 0, 0, 0, time.UTC)

func TestEachWindowIsDrawnWhereItsOwnLimitRefused(t *testing.T) {
	c := replay.Candidate{Limits: []sash.Limit{sash.PerSecond(1), sash.PerHour(3)}}
	minutes := func(n int) time.Time { return noon.Add(time.Duration(n) * time.Minute) }
	line := asked(t, c, noon, noon, minutes(1), minutes(2), minutes(3))
	if got, _ := line.around(0); !got.Equal(noon) {
		t.Errorf("the limit of a second refused at noon: %v", got)
	}
	if got, _ := line.around(1); !got.Equal(minutes(3)) {
		t.Errorf("the limit of an hour refused three minutes later: %v", got)
	}
}

func TestAWindowIsNotSeenBetweenTwoEventsOfOneInstant(t *testing.T) {
	line := asked(t, replay.Candidate{Limits: []sash.Limit{sash.PerSecond(2)}}, noon, noon, noon.Add(time.Second), noon.Add(time.Second))
	points := line.used(0, noon.Add(-time.Second), noon.Add(time.Minute))
	for i := range points[1:] {
		if points[i][0] == points[i+1][0] {
			t.Errorf("two steps at %v: %v", points[i][0], points)
		}
	}
}

// What a calendar's quota holds before the first request that is drawn is not known to be nothing.
func TestAQuotaIsDrawnFromItsFirstRequest(t *testing.T) {
	day := sash.PerCalendar(2, sash.CalendarDay, time.UTC)
	line := asked(t, replay.Candidate{Limits: []sash.Limit{day}}, noon, noon.Add(time.Hour), noon.Add(2*time.Hour))
	points := line.used(0, noon.Add(30*time.Minute), noon.Add(24*time.Hour))
	if c := line.chart(0); len(points) != 2 || points[0][1] != 2 || len(c.Steps) != 3 || c.Band != nil {
		t.Errorf("%v, %+v", points, c)
	}
}
