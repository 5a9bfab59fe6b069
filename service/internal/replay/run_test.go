package replay

import (
	"math"
	"slices"
	"testing"
	"time"

	"example.com/sash"
)

const second = int64(1_000_000)

// traceOf builds a trace of one client's requests at the given times in seconds.
func traceOf(name string, at ...float64) *Trace {
	var b Builder
	for _, s := range at {
		b.Add(1431857100*second+int64(math.Round(s*1e6)), Selection{Key: name, Cost: 1, Route: "GET /"})
	}
	return b.Trace()
}

func outcome(t *testing.T, tr *Trace, c Candidate) *Outcome {
	t.Helper()
	return outcomesOf(t, tr, []Candidate{c})[0]
}

func TestTimeSpentLimited(t *testing.T) {
	// Two in ten seconds. Refused at 1 and at 3, both until the one of 0 leaves at 10: limited from 1 to 10.
	// The one at 30 and its neighbours are refused at 31 until 40: nine seconds more.
	tr := traceOf("a", 0, 0, 1, 3, 30, 30, 31)
	o := outcome(t, tr, Candidate{Limits: []sash.Limit{sash.Every(2, 10*time.Second)}})
	if o.LimitedSeconds != 18 || o.Refused != 3 || o.FirstRefused != "2015-05-17T10:05:01Z" {
		t.Errorf("%v s, %d refused, the first at %s; want 18, 3 and 1 s after the start", o.LimitedSeconds, o.Refused, o.FirstRefused)
	}
}

func TestCostsAboveALimitNeverFit(t *testing.T) {
	var b Builder
	b.Add(1431857100*second, Selection{Key: "a", Cost: 5, Route: "GET /"})
	b.Add(1431857100*second, Selection{Key: "", Cost: 1})
	b.Add(1431857100*second, Selection{Key: "a", Cost: 0})
	tr := b.Trace()
	if n := tr.Counts(); n.Requests != 1 || n.Unlimited != 2 {
		t.Errorf("%+v", n)
	}
	if o := outcome(t, tr, Candidate{Limits: []sash.Limit{sash.PerMinute(4)}}); o.Refused != 1 || o.AboveLimit != 1 || o.ClientsLimited != 1 {
		t.Errorf("%+v", o)
	}
}

func TestRequestsOutOfOrderAreDecidedInTimeOrder(t *testing.T) {
	limit := []sash.Limit{sash.Every(1, 10*time.Second)}
	var b Builder
	add := func(at int64, route string) {
		b.Add((1431857100+at)*second, Selection{Key: "a", Cost: 1, Route: route})
	}
	add(5, "second")
	add(5, "third")
	add(0, "first")
	tr := b.Trace()
	if tr.Counts().Late != 1 {
		t.Errorf("%+v", tr.Counts())
	}
	o := outcome(t, tr, Candidate{Limits: limit})
	if len(o.WorstRoutes) != 2 || o.WorstRoutes[0].Name != "second" || o.WorstRoutes[1].Name != "third" {
		t.Errorf("refused: %+v", o.WorstRoutes)
	}
	add(20, "of another file")
	b.NextFile()
	add(5, "second")
	add(5, "third") // the same time: the order of the file counts
	tr = b.Trace()
	o = outcome(t, tr, Candidate{Limits: limit})
	if len(o.WorstRoutes) != 1 || o.WorstRoutes[0].Name != "third" || tr.Counts().Late != 0 {
		t.Errorf("refused: %+v", o.WorstRoutes)
	}
}

func TestRulesShareNothing(t *testing.T) {
	var b Builder
	for range 3 {
		b.Add(1431857100*second, Selection{Key: "a", Cost: 1, Rule: 0})
		b.Add(1431857100*second, Selection{Key: "b", Cost: 1, Rule: 1})
		b.Add(1431857100*second, Selection{Key: "c", Cost: 1, Rule: -1})
	}
	tr := b.Trace()
	o := outcome(t, tr, Candidate{Name: "p.yaml", Rules: []Rule{{Limits: []sash.Limit{sash.PerMinute(1)}}, {Limits: []sash.Limit{sash.PerMinute(2)}}}})
	if o.Refused != 3 || o.WorstClients[0].Refused != 2 || o.WorstClients[1].Refused != 1 || tr.Counts().Unlimited != 3 || o.Policy != "p.yaml" {
		t.Errorf("%+v", o)
	}
}

func TestAHeatSumsUnitsByStep(t *testing.T) {
	heat := traceOf("a", 0, 1, 2, 11).Heat([]string{"a"}, 2)
	if len(heat.Units[0]) != 2 || heat.Units[0][0] != 3 || heat.Units[0][1] != 1 {
		t.Errorf("%+v", heat)
	}
}

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
	demands := trace.Demands(candidates)
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
}
