package replay

import (
	"slices"
	"testing"
	"time"

	"example.com/sash"
)

// The demand in a window counts the clients whose rule has a limit with that window.
func TestTheDemandUnderRulesIsOfThoseTheyHoldFor(t *testing.T) {
	var b Builder
	for name, asks := range map[string]struct {
		rule  int
		times int64
	}{"a": {0, 3}, "b": {1, 5}, "c": {1, 7}, "banned": {2, 9}} {
		for i := range asks.times {
			b.Add(1431857100_000000+i, Selection{Key: name, Cost: 1, Route: "GET /", Rule: asks.rule})
		}
	}
	trace := b.Trace()
	day := sash.PerCalendar(4, sash.CalendarDay, time.UTC)
	rules := []Rule{{Limits: []sash.Limit{sash.PerMinute(2)}}, {Limits: []sash.Limit{sash.PerHour(6), day}}, {Limits: []sash.Limit{sash.PerSecond(1)}, Refuses: true}, {Limits: []sash.Limit{sash.PerSecond(1)}}}
	promoted := slices.Clone(rules)
	promoted[1] = Rule{Limits: []sash.Limit{sash.PerMinute(6)}}
	candidates := []Candidate{{Rules: rules}, {Rules: promoted}}
	demands, err := trace.Demands(t.Context(), candidates)
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string][]int64)
	for _, d := range demands {
		got[d.Window] = d.Peaks
	}
	for window, want := range map[string][]int64{"1m": {3, 5, 7}, "1h": {5, 7}, "day@UTC": {5, 7}} {
		if !slices.Equal(got[window], want) {
			t.Errorf("in any %s: %v, want %v", window, got[window], want)
		}
	}
	if len(demands) != 3 {
		t.Errorf("%d demands", len(demands))
	}
	if rule, _, err := trace.Timeline(t.Context(), candidates[1], "c"); err != nil || rule.Limits[0] != sash.PerMinute(6) {
		t.Errorf("%+v, %v", rule, err)
	}
	if _, _, err := trace.Timeline(t.Context(), candidates[1], "nobody"); err == nil {
		t.Error("an unknown client has no error")
	}
}

// A key of the compact log expires two windows after the last charge, and an entry counts for one.
func TestKeysAreThereUntilTheyExpire(t *testing.T) {
	var b Builder
	for i, name := range []string{"a", "b", "c"} {
		b.Add(1431857100_000000+int64(i)*90_000_000, Selection{Key: name, Cost: 1, Route: "GET /"})
	}
	limits := []sash.Limit{sash.PerMinute(2)}
	outcomes, err := b.Trace().Run(t.Context(), []Candidate{{Limits: limits}, {Limits: limits, Options: sash.Options{Algorithm: sash.SortedSetLog}}}, 5, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int64{2, 1} {
		if got := outcomes[i].Redis; got.Keys != want || got.Entries != 1 {
			t.Errorf("%s: %+v, want %d keys and an entry", outcomes[i].Algorithm, got, want)
		}
	}
}
