package replay

import (
	"strings"
	"testing"

	"example.com/sash/replay/accesslog"
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
		"no number":     {Expressions{Cost: "path"}, "expression for the cost: expected int64"},
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
		s, err := NewSelector(e)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.Select(&accesslog.Record{RemoteAddress: "192.0.2.7"}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
