package htmlreport

import (
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/service/internal/replay"
)

// asked is the timeline of a client that requests a unit at each of the given times.
func asked(t *testing.T, c replay.Candidate, times ...time.Time) *Timeline {
	t.Helper()
	var b replay.Builder
	for _, at := range times {
		b.Add(at.UnixMicro(), replay.Selection{Key: "a", Cost: 1, Route: "GET /"})
	}
	_, moments, err := b.Trace().Timeline(t.Context(), c, "a")
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
		if points[i].X == points[i+1].X {
			t.Errorf("two steps at %v: %v", points[i].X, points)
		}
	}
}

// What a calendar's quota holds before the first request that is drawn is not known to be nothing.
func TestAQuotaIsDrawnFromItsFirstRequest(t *testing.T) {
	day := sash.PerCalendar(2, sash.CalendarDay, time.UTC)
	line := asked(t, replay.Candidate{Limits: []sash.Limit{day}}, noon, noon.Add(time.Hour), noon.Add(2*time.Hour))
	points := line.used(0, noon.Add(30*time.Minute), noon.Add(24*time.Hour))
	if c := line.chart(0); len(points) != 2 || points[0].Y != 2 || len(c.Steps) != 3 || c.Band != nil {
		t.Errorf("%v, %+v", points, c)
	}
}
