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

func TestDiffNamesTheRulesThatDiffer(t *testing.T) {
	before := parsed(t, "domain: d\ndescriptors:\n- {key: a, limits: [1/1m]}\n- {key: b, limits: [1/1m]}\n- {key: c, limits: [1/1m]}\n")
	after := parsed(t, "domain: d\ndescriptors:\n- {key: n, rate_limit: {unlimited: true}}\n- {key: c, limits: [1/1m], shadow_mode: true}\n- {key: a, limits: [1/1m]}\n")
	var got []string
	for _, c := range Diff(before, after) {
		got = append(got, c.String())
	}
	want := "+ d / n: unlimited\n~ d / c: 1/1m by sliding-log -> 1/1m by sliding-log, shadow_mode\n- d / b: 1/1m by sliding-log"
	if strings.Join(got, "\n") != want {
		t.Errorf("%s\nwant\n%s", strings.Join(got, "\n"), want)
	}
	if len(Diff(after, after)) != 0 {
		t.Error("a configuration differs from itself")
	}
}
