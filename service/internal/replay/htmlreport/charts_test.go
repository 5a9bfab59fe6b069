package htmlreport

import (
	"math/rand/v2"
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
	d, err := b.Trace().Demand(t.Context(), sash.PerMinute(1))
	if err != nil {
		t.Fatal(err)
	}
	curve := d.Report().Curve
	for units := int64(1); units < 600; units++ {
		if got := at(curve, units); got.Affected != d.Affected(units) || got.Units != units {
			t.Fatalf("a limit of %d affects %d, want %d", units, got.Affected, d.Affected(units))
		}
	}
}

// A year of ten thousand clients takes as little of the page as any other log.
func TestALineHasFewPoints(t *testing.T) {
	var points []replay.Point
	for i := range 200_000 {
		points = append(points, replay.Point{Units: int64(1 + i), Affected: 200_000 - i})
	}
	some := fewer(points)
	if len(some) > mostPoints || len(some) < mostPoints/2 || some[0] != points[0] || some[len(some)-1] != points[len(points)-1] {
		t.Errorf("%d points from %v to %v", len(some), some[0], some[len(some)-1])
	}
	rows := (&curve{Lines: []line{{Points: some}}}).Table()
	if len(rows) > 40 || rows[0].Units != 1 || rows[len(rows)-1].Units != 200_000 || rows[len(rows)-1].Cells[0].Affected != 1 {
		t.Errorf("%d rows from %v to %v", len(rows), rows[0], rows[len(rows)-1])
	}
}

// A chart of many calls shows what all its steps would: nothing that is higher, lower, earlier or later is left out.
func TestThinStepsAreDrawnAlike(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var steps []point
	for x := 0.0; x < 3600; x += random.ExpFloat64() / 50 {
		steps = append(steps, point{1e9 + x, float64(random.IntN(1000))})
	}
	some := thin(steps, 1e9, 1e9+3600)
	if len(some) > 4*(columns+1) || len(steps) < 100_000 {
		t.Fatalf("%d of %d steps", len(some), len(steps))
	}
	type extent struct{ low, high float64 }
	extents := func(all []point) map[int]extent {
		m := make(map[int]extent)
		for _, s := range all {
			column := int((s.X - 1e9) / 3600 * columns)
			e, ok := m[column]
			if !ok {
				e = extent{s.Y, s.Y}
			}
			m[column] = extent{min(e.low, s.Y), max(e.high, s.Y)}
		}
		return m
	}
	want := extents(steps)
	for column, got := range extents(some) {
		if got != want[column] {
			t.Errorf("column %d goes from %v to %v, want %v", column, got.low, got.high, want[column])
		}
	}
	if some[0] != steps[0] || some[len(some)-1] != steps[len(steps)-1] {
		t.Errorf("the steps go from %v to %v", some[0], some[len(some)-1])
	}
	for i := range some[1:] {
		if some[i+1].X < some[i].X {
			t.Fatalf("step %d is before the one before it", i+1)
		}
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
	if len(c.Refused) > columns || marked != 19_999 || c.Count != 19_999 || len(c.First) != mostRefusals || c.Most != 1 {
		t.Errorf("%d marks of %v calls, %d in the table of %d; at most %d units", len(c.Refused), marked, len(c.First), c.Count, c.Most)
	}
}
