package replay

import (
	"bufio"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/service/internal/replay/accesslog"
)

// The real access log, beside the repository; and a part of it inside.
const (
	wholeLog  = "../../../../shared/data/apache_access.log"
	sampleLog = "../../testdata/access_log_sample.log"
)

func realLog(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile(wholeLog)
	if err != nil {
		t.Logf("the whole log is absent (%v): using the sample", err)
		if text, err = os.ReadFile(sampleLog); err != nil {
			t.Fatal(err)
		}
	}
	return string(text)
}

// trace replays text through the package's reader.
func trace(t testing.TB, text string, e Expressions) *Trace {
	t.Helper()
	s := must(NewSelector(e))
	var b Builder
	stats, err := accesslog.Read("log", strings.NewReader(text), accesslog.Options{}, func(r *accesslog.Record) error {
		selection, counts, err := s.Select(r)
		if counts && err == nil {
			b.Add(r.Time, selection)
		}
		return err
	})
	if err != nil || stats.Broken > 0 {
		t.Fatal(stats, err)
	}
	return b.Trace()
}

// A call is a line of the log, read with nothing of the package: split at spaces and quotes.
type call struct {
	at            time.Time
	address, path string
	bytes         int64
}

func calls(text string) (all []call) {
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		line := lines.Text()
		parts := strings.Split(line, `"`)
		head := strings.Fields(parts[0])
		at := must(time.Parse("02/Jan/2006:15:04:05 -0700", strings.Trim(head[3]+" "+head[4], "[]")))
		path, _, _ := strings.Cut(strings.Fields(parts[1])[1], "?")
		size, _ := strconv.ParseInt(strings.Fields(parts[2])[1], 10, 64) // "-" is 0
		all = append(all, call{at: at, address: head[0], path: path, bytes: size})
	}
	slices.SortStableFunc(all, func(a, b call) int { return a.at.Compare(b.at) })
	return all
}

// brute decides by the definition: a call is admitted when, for every limit, the units admitted to the same
// key in (t - window, t] and its own are at most the limit's.
func brute(all []call, key func(call) string, cost func(call) int64, limits []sash.Limit) (refused, clients, requests int64, admitted []call) {
	past := make(map[string][]call)
	limited := make(map[string]bool)
	for _, c := range all {
		k, n := key(c), cost(c)
		if n == 0 {
			continue
		}
		requests++
		fits := true
		for _, l := range limits {
			used := n
			for _, p := range slices.Backward(past[k]) { // in the order of time
				if !p.at.After(c.at.Add(-l.Window)) {
					break
				}
				used += cost(p)
			}
			fits = fits && used <= l.Units
		}
		if fits {
			past[k], admitted = append(past[k], c), append(admitted, c)
		} else {
			refused++
			limited[k] = true
		}
	}
	return refused, int64(len(limited)), requests, admitted
}

// Periods of a calendar are counted by the dates of its zone.
func TestPeaksAreThoseOfTheDefinition(t *testing.T) {
	text := realLog(t)
	byAddress := make(map[string][]time.Time)
	for _, c := range calls(text) {
		byAddress[c.address] = append(byAddress[c.address], c.at)
	}
	zone := must(time.LoadLocation("Asia/Kolkata"))
	within := func(window time.Duration) func(at, until time.Time) bool {
		return func(at, until time.Time) bool { return at.After(until.Add(-window)) }
	}
	same := func(form string) func(at, until time.Time) bool {
		return func(at, until time.Time) bool { return at.In(zone).Format(form) == until.In(zone).Format(form) }
	}
	tr := trace(t, text, Expressions{})
	for l, in := range map[sash.Limit]func(at, until time.Time) bool{
		sash.PerSecond(1): within(time.Second), sash.PerMinute(1): within(time.Minute), sash.PerHour(1): within(time.Hour),
		sash.PerCalendar(1, sash.CalendarDay, zone): same("2006-01-02"), sash.PerCalendar(1, sash.CalendarHour, zone): same("2006-01-02T15"),
		sash.PerCalendar(1, sash.CalendarMonth, zone): same("2006-01"),
	} {
		var want []int64
		for _, times := range byAddress {
			peak := int64(0)
			for _, until := range times {
				n := int64(0)
				for _, at := range times {
					if in(at, until) && !at.After(until) {
						n++
					}
				}
				peak = max(peak, n)
			}
			want = append(want, peak)
		}
		slices.Sort(want)
		demands := tr.Demands([]Candidate{{Limits: []sash.Limit{sash.PerDay(3), l}}, {Limits: []sash.Limit{l}}})
		if len(demands) != 2 {
			t.Fatal(len(demands))
		}
		d := demands[0] // sliding windows come first, the shortest of them first
		if l.Period != 0 {
			d = demands[1]
		}
		if !slices.Equal(d.Peaks, want) {
			t.Errorf("%v: peaks differ", l)
		}
		// The curve says whom a limit refuses; so does a replay.
		for _, units := range []int64{1, 20, 100} {
			l.Units = units
			if got := outcomesOf(t, tr, []Candidate{{Limits: []sash.Limit{l}}}); got[0].ClientsLimited != int64(d.Affected(units)) {
				t.Errorf("%v: the curve says %d clients, a replay %d", l, d.Affected(units), got[0].ClientsLimited)
			}
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func outcomesOf(t testing.TB, trace *Trace, candidates []Candidate) []*Outcome {
	t.Helper()
	return must(trace.Run(candidates, 5, nil))
}
