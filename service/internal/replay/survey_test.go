package replay

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"example.com/sash/service/internal/replay/accesslog"
)

// survey returns the signs of n records, each with a client and a time after noon.
func survey(n int, record func(i int) (client string, after time.Duration)) string {
	s, seen := &Survey{}, make(map[string]bool)
	s.NextFile()
	for i := range n {
		client, after := record(i)
		seen[client] = true
		s.Add(&accesslog.Record{RemoteAddress: client, Time: noon.Add(after).UnixMicro()})
	}
	var signs []string
	for _, w := range s.Warnings(Counts{Requests: int64(n)}, len(seen), "", false) {
		signs = append(signs, w.Sign)
	}
	return strings.Join(signs, " ")
}

func address(i int) string { return fmt.Sprintf("10.%d.%d.%d", i>>16&255, i>>8&255, i&255) }

// Each sign has a bound, and a log on either side of it.
func TestSurveyWarnsFromItsBoundsOn(t *testing.T) {
	const s, h = time.Second, time.Hour
	at := func(i int) time.Duration { return time.Duration(i) * s }
	back := func(by time.Duration, lines int) func(int) (string, time.Duration) { // for some lines, from the 5000th on
		return func(i int) (string, time.Duration) {
			if i >= 5000 && i < 5000+lines {
				return address(i % 50), at(i) - by
			}
			return address(i % 50), at(i)
		}
	}
	gap := func(by time.Duration, others ...int) func(int) (string, time.Duration) { // after the 5000th line, and smaller ones
		return func(i int) (string, time.Duration) {
			after := at(i)
			for _, other := range others {
				if i >= other {
					after += 12 * h
				}
			}
			if i >= 5000 {
				after += by
			}
			return address(i % 50), after
		}
	}
	for name, tt := range map[string]struct {
		n      int
		record func(i int) (string, time.Duration)
		want   string
	}{
		"nothing":                  {0, nil, ""},
		"89 of 100 come once":      {100, func(i int) (string, time.Duration) { return address(min(i, 88)), at(i) }, ""},
		"90 of 100 come once":      {100, func(i int) (string, time.Duration) { return address(min(i, 89)), at(i) }, "strangers"},
		"all of 99 come once":      {99, func(i int) (string, time.Duration) { return address(i), at(i) }, ""},
		"19 of one client":         {19, func(int) (string, time.Duration) { return address(7), 0 }, ""},
		"20 of one client":         {20, func(i int) (string, time.Duration) { return address(7), at(i) }, "one-client"},
		"9 of 100 nameless":        {100, func(i int) (string, time.Duration) { return []string{"-7", "a.b"}[min(i/9, 1)], at(i) }, ""},
		"10 of 100 nameless":       {100, func(i int) (string, time.Duration) { return []string{"-7", "a.b"}[min(i/10, 1)], at(i) }, "not-addresses"},
		"names of a time":          {100, func(i int) (string, time.Duration) { return "2026-10-24T12:00:00Z"[i%5:], at(i) }, "not-addresses"},
		"half in a second":         {200, func(i int) (string, time.Duration) { return address(i % 9), at(max(0, i-99)) }, ""},
		"one more than half":       {200, func(i int) (string, time.Duration) { return address(i % 9), at(max(0, i-100)) }, "one-second"},
		"back by ten minutes":      {9000, back(10*time.Minute, 4000), ""},
		"back by a minute more":    {9000, back(11*time.Minute, 4000), "clock"},
		"back for 31 lines":        {9000, back(h, 31), ""},
		"back for 32 lines":        {9000, back(h, 32), "clock"},
		"back to before the log":   {9000, back(15*h, 4000), ""},
		"newest first":             {9000, func(i int) (string, time.Duration) { return address(i % 50), -at(i) }, ""},
		"newest first, a busy one": {9000, func(i int) (string, time.Duration) { return address(i % 50), -at(i / 50 * 7) }, ""},
		"back in a busy one":       {9000, func(i int) (string, time.Duration) { return address(i % 50), at(i/50*60) - time.Duration(i/5000)*h }, "clock"},
		"in no order at all":       {9000, func(i int) (string, time.Duration) { return address(i % 50), at(i * 7919 % 9000) }, ""},
		"blocks of processes": {9000, func(i int) (string, time.Duration) {
			return address(i % 50), at(i/600*600) - at(i/300%2*300) + at(i%300)
		}, ""},
		"a night":                {9000, gap(19 * h), ""},
		"a day":                  {9000, gap(21 * h), "gap"},
		"a weekend among nights": {9000, gap(59*h, 1000, 2000, 3000), ""},
		"a week among nights":    {9000, gap(7*24*h, 1000, 2000, 3000), "gap"},
		"a day among few":        {200, func(i int) (string, time.Duration) { return address(i % 50), at(i*600) + time.Duration(i/100)*24*h }, ""},
		"ten years less a day": {200, func(i int) (string, time.Duration) {
			return address(i % 50), (longSpan - 24*h) / 199 * time.Duration(i)
		}, ""},
		"ten years and a day": {200, func(i int) (string, time.Duration) {
			return address(i % 50), (longSpan + 24*h) / 199 * time.Duration(i)
		}, "span"},
		"an hour with an hour's breaks": {9000, func(i int) (string, time.Duration) { return address(i % 50), at(i%60) + time.Duration(i/100)*h }, ""},
	} {
		if got := survey(tt.n, tt.record); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// Rotated files in any order are no step of the clock.
func TestSurveyKnowsFiles(t *testing.T) {
	var s Survey
	for _, hour := range []int{3, 1, 2, 0} {
		s.NextFile()
		for i := range 3600 {
			s.Add(&accesslog.Record{RemoteAddress: address(i % 50), Time: noon.Add(time.Duration(hour)*time.Hour + time.Duration(i)*time.Second).UnixMicro()})
		}
	}
	if w := s.Warnings(Counts{Requests: 4 * 3600}, 50, "", false); len(w) != 0 {
		t.Error(w)
	}
	if w := s.Warnings(Counts{Requests: 4 * 3600}, 1, `"api"`, false); len(w) != 0 {
		t.Error("a constant key", w)
	}
}

func TestDescribe(t *testing.T) {
	for key, want := range map[string]string{
		"": "the address", "user": "the user", "user_agent": "the user agent", `header("X-Api-Key")`: `the value of "header(\"X-Api-Key\")"`,
		"prefix(remote_address, 24)": "the network of the address",
		`"api"`:                      `"api" for every request`, "(": `the value of "("`,
	} {
		if got := Describe(key); got != want {
			t.Errorf("%s: %s, want %s", key, got, want)
		}
	}
}
