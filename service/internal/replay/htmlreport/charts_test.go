package htmlreport

import (
	"testing"

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
