package config

import (
	"fmt"
	"strings"
	"testing"
)

func TestTraceSaysHowARuleIsFound(t *testing.T) {
	cfg := parsed(t, envoyText)
	for request, want := range map[string]string{
		"path=/api/v1":           "path=/api/* by wildcard; d.path_/api/*",
		"path=/api/v2/health":    "path=/api/v2/health by exact value; d.path_/api/v2/health",
		"route=a method=GET":     "route by key alone, method by key alone; d.route_a.method",
		"route=a":                "route by key alone; ",
		"route=a verb=GET x=y":   "route by key alone,  by ; ",
		"files=files/a user=ann": "files=files/* by wildcard, user by key alone; d.files_files/*.user",
	} {
		var entries []Entry
		for field := range strings.FieldsSeq(request) {
			key, value, _ := strings.Cut(field, "=")
			entries = append(entries, Entry{key, value})
		}
		steps, found, err := cfg.Trace("d", entries)
		if err != nil {
			t.Fatal(err)
		}
		var said []string
		for _, s := range steps {
			said = append(said, fmt.Sprintf("%s by %s", strings.ReplaceAll(s.Matched, `"`, ""), s.How))
		}
		if got := strings.Join(said, ", ") + "; " + found.Metric; got != want {
			t.Errorf("%s: %s, want %s", request, got, want)
		}
	}
}

func TestRemovedRulesAreNamed(t *testing.T) {
	before := parsed(t, "domain: d\ndescriptors:\n- {key: a, limits: [1/1m]}\n- {key: b, limits: [1/1m]}\n- {key: c, limits: [1/1m]}\n")
	after := parsed(t, "domain: d\ndescriptors:\n- {key: n, limits: [1/1m]}\n- {key: b, limits: [2/1m]}\n")
	if got := strings.Join(Removed(before, after), "; "); got != "d / a; d / c" {
		t.Errorf("removed: %s", got)
	}
}
