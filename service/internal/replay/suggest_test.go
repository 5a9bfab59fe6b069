package replay

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/service/internal/replay/accesslog"
)

// noon is a time from which made logs begin.
var noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

// made returns the trace of calls, each of the cost that is in its bytes.
func made(all []call) *Trace {
	var b Builder
	for _, c := range all {
		b.Add(c.at.UnixMicro(), Selection{Key: c.address, Cost: c.bytes, Route: c.path})
	}
	return b.Trace()
}

// random returns calls of clients that are quiet, of some that come in bursts, and of one that makes a third of all.
func random(r *rand.Rand) (all []call) {
	add := func(name string, after time.Duration) {
		all = append(all, call{at: noon.Add(after.Truncate(time.Second / 4)), address: name, path: "GET /", bytes: 1})
	}
	span := time.Hour
	for c := range 20 + r.IntN(40) {
		for range 1 + r.IntN(20) {
			at := time.Duration(r.Int64N(int64(span)))
			for range 1 + r.IntN(1+c%7) {
				add(fmt.Sprint("client ", c), at+time.Duration(r.Int64N(int64(20*time.Second))).Truncate(time.Second/4))
			}
		}
	}
	for range len(all) / 2 {
		add("the heavy one", time.Duration(r.Int64N(int64(span))))
	}
	slices.SortStableFunc(all, func(a, b call) int { return a.at.Compare(b.at) })
	return all
}

func byAddress(c call) string { return c.address }
func bytesOf(c call) int64    { return c.bytes }

func TestASharePermitsItsWholeNumber(t *testing.T) {
	for share, want := range map[float64]int64{0: 0, 0.7 / 100: 7, 5.8 / 100: 58, 0.29: 290, 0.0019: 1, 0.00099: 0} {
		if got := shareOf(share, 1000); got != want {
			t.Errorf("%v of 1000: %d, want %d", share, got, want)
		}
	}
}

// Whoever sends how much, the pair refuses at most the share of clients and of requests that was asked for, and neither
// limit can be smaller.
func TestASuggestionKeepsBothCaps(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 2))
	bound := 0 // the cap on requests decided
	for n := range 30 {
		all := random(r)
		tr := made(all)
		caps := Caps{Clients: []float64{0, 0.03, 0.1, 0.3}[n%4], Requests: []float64{0, 0.001, 0.05}[n%3]}
		s := must(tr.Suggest(caps, 10*time.Second, 5*time.Minute))
		within := func(pair []sash.Limit) bool {
			refused, limited, requests, _ := brute(all, byAddress, bytesOf, pair)
			allowed := cmp.Or(caps.Requests, 1) * float64(requests)
			return float64(refused) <= allowed && float64(limited) <= caps.Clients*float64(tr.Clients())
		}
		refused, limited, _, _ := brute(all, byAddress, bytesOf, s.Limits)
		if !within(s.Limits) || s.Refused != refused || int64(s.Affected) != limited {
			t.Fatalf("%+v: %v refuses %d (said %d) of %d clients (said %d)", caps, s.Limits, refused, s.Refused, limited, s.Affected)
		}
		for i := range s.Limits {
			less := slices.Clone(s.Limits)
			if less[i].Units--; less[i].Units < 1 || less[1].Units < less[0].Units {
				continue
			}
			if within(less) {
				t.Errorf("%+v: %v would do, too, instead of %v", caps, less, s.Limits)
			}
		}
		open := must(tr.Suggest(Caps{Clients: caps.Clients}, 10*time.Second, 5*time.Minute))
		if !within(open.Limits) {
			bound++
		}
	}
	if bound < 5 {
		t.Errorf("the cap on requests decided %d times", bound)
	}
}

// The first part of a log knows nothing of the rest, and the rest is judged by what it has alone.
func TestAHoldOutIsJudgedOnTheRest(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 3))
	for range 10 {
		all := random(r)
		tr := made(all)
		caps := Caps{Clients: 0.1}
		h := must(tr.HoldOut(caps, 10*time.Second, 5*time.Minute))
		from, last := all[0].at, all[len(all)-1].at
		var first, rest []call
		for _, c := range all {
			if c.at.Sub(from) < last.Sub(from)*7/10 {
				first = append(first, c)
			} else {
				rest = append(rest, c)
			}
		}
		s := must(made(first).Suggest(caps, 10*time.Second, 5*time.Minute))
		if !slices.Equal(h.Limits, s.Limits) || h.Percent != 70 {
			t.Errorf("%v, and the first part alone gives %v", h.Limits, s.Limits)
		}
		for i, part := range [][]call{first, rest} {
			refused, limited, requests, _ := brute(part, byAddress, bytesOf, h.Limits)
			if got := []Judged{h.First, h.Rest}[i]; got.Refused != refused || int64(got.Limited) != limited || got.Requests != requests || got.Clients != made(part).Clients() {
				t.Errorf("part %d: %+v; the definition says %d of %d, %d clients", i, got, refused, requests, limited)
			}
		}
	}
	// Nothing happens for most of the last part.
	all := []call{{at: noon, address: "a", bytes: 1}}
	for i := range 3600 {
		all = append(all, call{at: noon.Add(time.Duration(i) * time.Second), address: "a", bytes: 1})
	}
	all = append(all, call{at: noon.Add(3 * time.Hour), address: "a", bytes: 1})
	tr := made(all)
	if _, err := tr.HoldOut(Caps{}, 10*time.Second, 5*time.Minute); !errors.Is(err, ErrTooShort) {
		t.Errorf("%v", err)
	}
}

// A log knows a window as often as it covers one: silences do not count, and samples count only what they hold.
func TestWhatALogKnows(t *testing.T) {
	every := func(from time.Duration, step time.Duration, until time.Duration) (all []call) {
		for at := from; at < until; at += step {
			all = append(all, call{at: noon.Add(at), address: fmt.Sprint(int64(at/time.Second) % 40), bytes: 1})
		}
		return all
	}
	const day = 24 * time.Hour
	sampled := []call(nil)
	for hour := range time.Duration(100) {
		sampled = append(sampled, every(hour*time.Hour, time.Second, hour*time.Hour+time.Minute)...)
	}
	nights := []call(nil)
	for d := range time.Duration(14) {
		nights = append(nights, every(d*day, 10*time.Second, d*day+9*time.Hour)...)
	}
	for name, tt := range map[string]struct {
		log     []call
		sampled bool
		known   map[time.Duration]int
	}{
		"71 seconds":                {every(0, 500*time.Millisecond, 71*time.Second), false, map[time.Duration]int{time.Second: 70, 5 * time.Second: 14, 10 * time.Second: 7, time.Hour: 1}},
		"a day":                     {every(0, time.Second, day), false, map[time.Duration]int{time.Hour: 24, day: 1, 10 * time.Second: 8640}},
		"one request in 20 minutes": {every(0, 20*time.Minute, 10*day), false, map[time.Duration]int{10 * time.Second: 720, time.Hour: 239}},
		"a minute of each hour":     {sampled, true, map[time.Duration]int{10 * time.Second: 600, time.Minute: 100, 5 * time.Minute: 0, time.Hour: 0, day: 0}},
		"office hours":              {nights, false, map[time.Duration]int{time.Hour: 14 * 8, day: 13}},
		"two days, a month apart":   {append(every(0, time.Second, day), every(30*day, time.Second, 31*day)...), false, map[time.Duration]int{time.Hour: 48, day: 2, 10 * day: 2}},
		"one request":               {every(0, time.Second, time.Second), false, map[time.Duration]int{time.Second: 1, time.Hour: 1}},
		"nothing":                   {nil, false, map[time.Duration]int{time.Second: 0}},
	} {
		c := made(tt.log).Coverage()
		if c.Sampled != tt.sampled {
			t.Errorf("%s: sampled %v, %d of %d minutes", name, c.Sampled, c.Busy, c.Minutes)
		}
		for window, want := range tt.known {
			if got := c.Windows(window); got != want {
				t.Errorf("%s: knows %v %d times, want %d", name, window, got, want)
			}
		}
	}
}

const second = int64(1_000_000)

func outcome(t *testing.T, tr *Trace, c Candidate) *Outcome {
	t.Helper()
	return outcomesOf(t, tr, []Candidate{c})[0]
}

func TestTimeSpentLimited(t *testing.T) {
	// Two in ten seconds. Refused at 1 and at 3, both until the one of 0 leaves at 10: limited from 1 to 10.
	// The one at 30 and its neighbours are refused at 31 until 40: nine seconds more.
	var b Builder
	for _, at := range []int64{0, 0, 1, 3, 30, 30, 31} {
		b.Add((1431857100+at)*second, Selection{Key: "a", Cost: 1, Route: "GET /"})
	}
	o := outcome(t, b.Trace(), Candidate{Limits: []sash.Limit{sash.Every(2, 10*time.Second)}})
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
	o := outcome(t, tr, Candidate{Limits: limit})
	if len(o.WorstRoutes) != 2 || o.WorstRoutes[0].Name != "second" || o.WorstRoutes[1].Name != "third" {
		t.Errorf("refused: %+v", o.WorstRoutes)
	}
	add(20, "fourth")
	add(5, "second")
	add(5, "third") // the same time: the order of the file counts
	tr = b.Trace()
	o = outcome(t, tr, Candidate{Limits: limit})
	if len(o.WorstRoutes) != 1 || o.WorstRoutes[0].Name != "third" {
		t.Errorf("refused: %+v", o.WorstRoutes)
	}
}

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

func TestRefusedClientsAreDescribed(t *testing.T) {
	var b Builder
	for i := range 10 {
		b.Add(1431857100*second, Selection{Key: "66.249.73.135", Cost: 1, Status: []int64{200, 404}[i/9], Agent: "Mozilla/5.0 (compatible; Googlebot/2.1)"})
		b.Add(1431857100*second, Selection{Key: "192.0.2.7", Cost: 1})
	}
	o := outcome(t, b.Trace(), Candidate{Limits: []sash.Limit{sash.PerMinute(4)}})
	want := []Worst{
		{Name: "192.0.2.7", Requests: 10, Refused: 6, LimitedSeconds: 60},
		{Name: "66.249.73.135", Requests: 10, Refused: 6, LimitedSeconds: 60, Statuses: "200 90%, 404 10%", UserAgent: "Mozilla/5.0 (compatible; Googlebot/2.1)", Crawler: "Googlebot"},
	}
	for i := range o.WorstClients {
		o.WorstClients[i].index = 0
	}
	if !slices.Equal(o.WorstClients, want) {
		t.Errorf("%+v", o.WorstClients)
	}
	for name, want := range map[string]string{
		"66.249.64.0/24": "Googlebot", "2001:4860:4801:10::/64": "Googlebot", "msnbot-1.search.msn.com": "Bingbot", "search.msn.com.example.com": "", "192.0.2.7": "", "ann": "",
	} {
		if got := accesslog.Crawler(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
