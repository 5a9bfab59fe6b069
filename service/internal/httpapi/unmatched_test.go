package httpapi

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"example.com/sash/memstore"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/servertest"
)

const unfolded = `
domain: edge
descriptors:
  - {key: path, value: /Login, limits: ["1/1m"]}
  - {key: path, value: /API/*, limits: ["1/1m"]}
  - {key: path, value: /end/, limits: ["1/1m"]}
  - {key: path, value: "/a;v", limits: ["1/1m"]}
  - {key: path, value: "/x/..;/a", limits: ["1/1m"]}
  - {key: path, value: /ok, limits: ["1/1m"]}
  - {key: path, value: /ok/*, limits: ["1/1m"]}
  - {key: path, value: "/ok *", limits: ["1/1m"]}
  - {key: path, value: "*", limits: ["9/1m"]}
  - {key: host, value: Example.com, limits: ["1/1m"]}
  - {key: host, value: "2001:db8::1", limits: ["1/1m"]}
  - key: method
    descriptors: [{key: path, value: /Deep, limits: ["1/1m"]}]
---
domain: other
descriptors: [{key: path, value: /Login, limits: ["1/1m"]}]
`

// A rule that no folded value can match is named in the log, once for each question and configuration.
func TestARuleThatFoldingLeavesUnmatchedIsAWarning(t *testing.T) {
	decider := servertest.Decider(t, memstore.New(nil), unfolded)
	var log strings.Builder
	h := New(decider, &Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	said := func(query string) string {
		log.Reset()
		auth(h, "domain=edge&descriptor="+query)
		return log.String()
	}
	never := []string{`value=/end/ `, `value=/a;v `, `value=/x/..;/a `}
	for query, want := range map[string][]string{
		"path&path=all":        append([]string{`value=/Login `, `value=/API/* `}, never...),
		"path":                 never,
		"path&path=clean":      {`value=/end/ `},
		"path,method&path=all": nil, // no rule has these keys
		"method,path&path=all": {`rule=method.path_/Deep value=/Deep `},
		"path=/Login&path=all": nil, // the proxy's own value
		"host":                 {`value=Example.com `},
		"remote_address":       nil,
	} {
		got := said(query)
		if strings.Count(got, "level=WARN") != len(want) {
			t.Errorf("%s: %d warnings, want %d:\n%s", query, strings.Count(got, "level=WARN"), len(want), got)
		}
		for _, line := range want {
			if !strings.Contains(got, line) {
				t.Errorf("%s: no %s in\n%s", query, line, got)
			}
		}
		if again := said(query); again != "" {
			t.Errorf("%s: again: %s", query, again)
		}
	}
	again, err := config.Parse("test.yaml", []byte(unfolded))
	if err == nil {
		err = decider.Use(again)
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := said("host"); strings.Count(got, "level=WARN") != 1 {
		t.Errorf("with another configuration: %s", got)
	}
	for i := range 2 * maxQuestions {
		said(fmt.Sprintf("host&descriptor=path=%d", i))
	}
	if got := said("host&descriptor=path"); got != "" || len(h.unmatched.seen) != maxQuestions {
		t.Errorf("after many questions: %d known, %s", len(h.unmatched.seen), got)
	}
}
