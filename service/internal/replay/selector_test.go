package replay

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/httplimit"
	"example.com/sash/service/internal/replay/accesslog"
)

func TestExpressions(t *testing.T) {
	record := accesslog.Record{RemoteAddress: "192.0.2.7", User: "u", Method: "GET", Path: "/users/7", Status: 404, Bytes: 2048, UserAgent: "curl"}
	for name, tt := range map[string]struct {
		e     Expressions
		want  Selection
		count bool
	}{
		"nothing said":    {Expressions{}, Selection{Key: "192.0.2.7", Cost: 1, Route: "GET /users/7"}, true},
		"a prefix":        {Expressions{Key: "prefix(remote_address, 24)"}, Selection{Key: "192.0.2.0/24", Cost: 1, Route: "GET /users/7"}, true},
		"several parts":   {Expressions{Key: "key(user, method)"}, Selection{Key: "u:GET", Cost: 1, Route: "GET /users/7"}, true},
		"a missing part":  {Expressions{Key: "key(user, host)"}, Selection{Cost: 1, Route: "GET /users/7"}, true},
		"a header":        {Expressions{Key: `header("User-Agent")`}, Selection{Key: "curl", Cost: 1, Route: "GET /users/7"}, true},
		"a pattern":       {Expressions{Key: "route", Routes: []string{"/users/{id}"}}, Selection{Key: "/users/{id}", Cost: 1, Route: "GET /users/{id}"}, true},
		"with the method": {Expressions{Key: "route", Routes: []string{"GET /users/{id}"}}, Selection{Key: "GET /users/{id}", Cost: 1, Route: "GET /users/{id}"}, true},
		"a cost":          {Expressions{Cost: `method == "GET" ? 1 + bytes / 1024 : 5`}, Selection{Key: "192.0.2.7", Cost: 3, Route: "GET /users/7"}, true},
		"filtered":        {Expressions{Where: `status < 400 && method in ["GET"]`}, Selection{}, false},
		"not filtered":    {Expressions{Where: `status >= 400 && path startsWith "/users/"`}, Selection{Key: "192.0.2.7", Cost: 1, Route: "GET /users/7"}, true},
	} {
		s, err := NewSelector(tt.e)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, count, err := s.Select(&record)
		got.Status, got.Agent = 0, ""
		if err != nil || count != tt.count || got != tt.want {
			t.Errorf("%s: %+v, %v, %v; want %+v", name, got, count, err, tt.want)
		}
	}
	v6 := record
	v6.RemoteAddress = "2001:db8:1:2:3::4"
	s, _ := NewSelector(Expressions{Key: "prefix(remote_address, 24)"})
	if got, _, _ := s.Select(&v6); got.Key != "2001:db8:1:2::/64" {
		t.Errorf("IPv6: %q", got.Key)
	}
}

// The default key names the clients that httplimit has, whatever way an address is spelled.
func TestTheDefaultKeyIsTheClientOfHTTPLimit(t *testing.T) {
	s := must(NewSelector(Expressions{}))
	for _, address := range []string{
		"192.0.2.7", "::ffff:192.0.2.7", "::ffff:c000:207", "2001:db8:1:2::3", "2001:0DB8:1:2:0:0:0:4", "2001:db8:1:2:ffff::", "2001:db8:1:3::3",
		"fe80::1%eth0", "fe80::2", "::1",
	} {
		got, _, err := s.Select(&accesslog.Record{RemoteAddress: address})
		want := must(httplimit.PeerAddress(&http.Request{RemoteAddr: net.JoinHostPort(address, "4711")}))
		if err != nil || sash.Key("addr", got.Key) != want {
			t.Errorf("%s: %q, %v; httplimit has %q", address, got.Key, err, want)
		}
	}
	if got, _, _ := s.Select(&accesslog.Record{RemoteAddress: "crawl-1.example.com"}); got.Key != "crawl-1.example.com" {
		t.Errorf("a host name: %q", got.Key)
	}
}

func TestWrongExpressionsSayWhy(t *testing.T) {
	for name, tt := range map[string]struct {
		e    Expressions
		want string
	}{
		"unknown field": {Expressions{Key: "remote_addr"}, "expression for the key: unknown name remote_addr"},
		"no text":       {Expressions{Key: "status"}, "expression for the key: expected string"},
		"no number":     {Expressions{Cost: "path"}, "expression for the cost: expected float64"},
		"no yes or no":  {Expressions{Where: "status"}, "expression for the requests that count: expected bool"},
		"no route":      {Expressions{Routes: []string{"users/{"}}, `route "users/{"`},
	} {
		if _, err := NewSelector(tt.e); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
	for name, e := range map[string]Expressions{
		"a cost below zero": {Cost: "-1"},
		"too many bits":     {Key: "prefix(remote_address, 33)"},
	} {
		s := must(NewSelector(e))
		if _, _, err := s.Select(&accesslog.Record{RemoteAddress: "192.0.2.7"}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestMissingFieldsAreCounted(t *testing.T) {
	s := must(NewSelector(Expressions{
		Key: "key(user, remote_address)", Cost: `int(field("units"))`, Where: `int(header("X-Level")) > 3`,
	}))
	text := `{"time":1431857103,"status":200,"remote_addr":"192.0.2.7","user":"u","units":"5","http_x_level":"4"}
{"time":1431857103,"status":200,"remote_addr":"192.0.2.7","user":"u","units":"","http_x_level":"4"}
{"time":1431857103,"status":200,"remote_addr":"192.0.2.7","user":"-","units":"2","http_x_level":"4"}
{"time":1431857103,"status":200,"remote_addr":"192.0.2.7","user":"u","units":"2"}
{"time":1431857103,"status":200,"remote_addr":"192.0.2.7","user":"u","units":"2","http_x_level":"1"}
`
	var b Builder
	if _, err := accesslog.Read("log", strings.NewReader(text), accesslog.Options{}, func(r *accesslog.Record) error {
		selection, counts, err := s.Select(r)
		if counts && err == nil {
			b.Add(r.Time, selection)
		} else if err == nil {
			b.Counts.Filtered++
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if c := b.Trace().Counts(); c.Requests != 1 || c.Unlimited != 3 || c.Filtered != 1 {
		t.Errorf("%+v", c)
	}
	var got []string
	for _, m := range s.Missing() {
		got = append(got, m.String())
	}
	want := `1 of 5 lines have no field("units"); 1 of 5 lines have no user; 1 of 5 lines have no header("X-Level")`
	if strings.Join(got, "; ") != want {
		t.Errorf("%q, want %q", got, want)
	}
	// A mistake is one even so.
	s = must(NewSelector(Expressions{Cost: `int(path)`}))
	if _, _, err := s.Select(&accesslog.Record{RemoteAddress: "192.0.2.7", Path: "/a"}); err == nil {
		t.Error("a path is no number")
	}
}

// survey returns the signs of n records, each with a client and a time after noon.
func survey(n int, record func(i int) (client string, after time.Duration)) string {
	s, seen := &Survey{}, make(map[string]bool)
	s.NextFile()
	for i := range n {
		client, after := record(i)
		seen[client] = true
		s.Add(&accesslog.Record{RemoteAddress: client, Time: noon.Add(after).UnixMicro(), Written: noon.Add(after).UnixMicro()})
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
		"9 of 9000 back":           {9000, back(time.Minute, 9), ""},
		"10 of 9000 back":          {9000, back(time.Minute, 10), "disorder"},
		"back to before the log":   {9000, back(15*h, 4000), "disorder"},
		"newest first":             {9000, func(i int) (string, time.Duration) { return address(i % 50), -at(i) }, ""},
		"newest first, a busy one": {9000, func(i int) (string, time.Duration) { return address(i % 50), -at(i / 50 * 7) }, ""},
		"in no order at all":       {9000, func(i int) (string, time.Duration) { return address(i % 50), at(i * 7919 % 9000) }, "disorder"},
		"some of 99 back":          {99, func(i int) (string, time.Duration) { return address(i % 50), at(i * 70 % 99) }, ""},
		"a night":                  {9000, gap(19 * h), ""},
		"a day":                    {9000, gap(21 * h), "gap"},
		"a weekend among nights":   {9000, gap(59*h, 1000, 2000, 3000), ""},
		"a week among nights":      {9000, gap(7*24*h, 1000, 2000, 3000), "gap"},
		"a day among few":          {200, func(i int) (string, time.Duration) { return address(i % 50), at(i*600) + time.Duration(i/100)*24*h }, ""},
		"ten years less a day": {200, func(i int) (string, time.Duration) {
			return address(i % 50), (longSpan - 24*h) / 199 * time.Duration(i)
		}, ""},
		"ten years and a day": {200, func(i int) (string, time.Duration) {
			return address(i % 50), (longSpan + 24*h) / 199 * time.Duration(i)
		}, "span"},
		"an hour with an hour's breaks": {9000, func(i int) (string, time.Duration) { return address(i % 50), at(i%100) + time.Duration(i/100)*h }, ""},
	} {
		if got := survey(tt.n, tt.record); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// A request is no disorder because it was slow, where only its start is known, or because times are rounded.
func TestSlowRequestsAreNoDisorder(t *testing.T) {
	for i, r := range []accesslog.Record{{Written: 1}, {}, {Written: 1, Ended: true}} {
		most := []time.Duration{time.Second, 2 * time.Minute, 2 * time.Minute}[i]
		for back, want := range map[time.Duration]int{most: 0, most + time.Microsecond: 1} {
			s := &Survey{}
			s.NextFile()
			for n := range 1000 { // ten of them by that much before the latest
				r.Time, r.RemoteAddress = noon.Add(time.Duration(n)*time.Hour-time.Duration(n%100/99)*(time.Hour+back)).UnixMicro(), address(n%50)
				r.Written = min(1, r.Written) * r.Time
				s.Add(&r)
			}
			if got := s.Warnings(Counts{Requests: 1000}, 50, "", false); len(got) != want {
				t.Errorf("record %d, %v: %v", i, back, got)
			}
		}
	}
}

func TestDescribe(t *testing.T) {
	for key, want := range map[string]string{
		"": "the address, IPv6 by its /64", "remote_address": "the address", "user": "the user", "user_agent": "the user agent", `header("X-Api-Key")`: `the value of "header(\"X-Api-Key\")"`,
		"prefix(remote_address, 24)": "the network of the address",
		`"api"`:                      `"api" for every request`, "(": `the value of "("`,
	} {
		if got := Describe(key); got != want {
			t.Errorf("%s: %s, want %s", key, got, want)
		}
	}
}
