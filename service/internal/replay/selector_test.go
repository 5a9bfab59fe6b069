package replay

import (
	"strings"
	"testing"

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

func TestAFractionOfAUnitIsAUnit(t *testing.T) {
	for cost, want := range map[string]int64{
		"0.5": 1, "0.000000000001": 1, "1.000001": 2, "3": 3, "bytes / 1024": 3, "bytes / 1000": 4, "0.1 * 3 * 10": 3, "0": 0, "(0.1 + 0.2) * 10": 3, "status * 1000000": 404_000_000,
	} {
		s := must(NewSelector(Expressions{Cost: cost}))
		if got, _, err := s.Select(&accesslog.Record{RemoteAddress: "192.0.2.7", Status: 404, Bytes: 3072}); err != nil || got.Cost != want {
			t.Errorf("%s: %d, %v; want %d", cost, got.Cost, err, want)
		}
	}
	for _, cost := range []string{"-0.1", "-0.0000000000001", "1 / 0", "0.0 / 0", "1e300"} {
		s := must(NewSelector(Expressions{Cost: cost}))
		if got, _, err := s.Select(&accesslog.Record{RemoteAddress: "192.0.2.7"}); err == nil {
			t.Errorf("%s: %d, no error", cost, got.Cost)
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
			b.Skip()
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
