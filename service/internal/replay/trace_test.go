package replay

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"example.com/sash"
)

// Requests come in time order, those of one time as they were added, however late they are.
func TestRequestsAreSortedByTime(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		var b Builder
		n := 1 + r.IntN(500)
		for i := range n {
			b.Add(1431857100*second+r.Int64N(60)*second, Selection{Key: "a", Cost: int64(i + 1), Route: "/"})
		}
		var at, cost int64
		seen := 0
		if err := b.Trace().each(t.Context(), func(_ int, e *event) error {
			if e.at < at || e.at == at && e.cost < cost {
				t.Errorf("request %d of %d comes after one of %d", e.cost, e.at, at)
			}
			at, cost = e.at, e.cost
			seen++
			return nil
		}); err != nil || seen != n {
			t.Errorf("%d of %d requests, %v", seen, n, err)
		}
	}
}

func TestPassesEndWithTheContext(t *testing.T) {
	var b Builder
	for i := range int64(3 * steps) {
		b.Add(1431857100*second+i, Selection{Key: "a", Cost: 1, Route: "/"})
	}
	if _, err := b.Trace().Demand(&endsAfter{Context: t.Context(), looks: 2}, sash.PerMinute(1)); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// What clients ask for in the periods of a calendar, counted by the dates of its zone.
func TestDemandOfACalendar(t *testing.T) {
	text := realLog(t)
	zone, err := time.LoadLocation("Asia/Kolkata")
	if err != nil {
		t.Fatal(err)
	}
	for form, l := range map[string]sash.Limit{
		"2006-01-02":    {Units: 1, Period: sash.CalendarDay, Zone: zone},
		"2006-01-02T15": {Units: 1, Period: sash.CalendarHour, Zone: zone},
		"2006-01":       {Units: 1, Period: sash.CalendarMonth, Zone: zone},
	} {
		asked, peaks := make(map[[2]string]int64), make(map[string]int64)
		for _, c := range calls(t, text) {
			period := [2]string{c.address, c.at.In(zone).Format(form)}
			asked[period]++
			peaks[c.address] = max(peaks[c.address], asked[period])
		}
		var want []int64
		for _, n := range peaks {
			want = append(want, n)
		}
		slices.Sort(want)
		got, err := trace(t, text, Expressions{}).Demands(t.Context(), []Candidate{{Limits: []sash.Limit{sash.PerMinute(3), l}}, {Limits: []sash.Limit{l}}})
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != 2 || !slices.Equal(got[1].Peaks, want) {
			t.Errorf("%s: %d demands, %v", form, len(got), got[1].Peaks)
		}
	}
}
