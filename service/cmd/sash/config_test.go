package main

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestConfigExplainAndDiff(t *testing.T) {
	dir := t.TempDir()
	before, after := filepath.Join(dir, "before.yaml"), filepath.Join(dir, "after")
	put(t, before, strings.ReplaceAll(edge, "LIMIT", "2"))
	put(t, after+"/edge.yaml", strings.ReplaceAll(edge, "LIMIT", "4"))
	put(t, after+"/more.yaml", "domain: edge\ndescriptors:\n- {key: path, value: '/api/*', rate_limit: {unit: second, requests_per_unit: 0}}\n")

	code, out, err := sash(t, nil, "config", "explain", before, "generic_key=login", "user=ann")
	want := `generic_key=login  matches generic_key=login by its exact value
user=ann  matches user by its key alone
rule     edge / generic_key=login / user
limits   2/1d by sliding-log
charged  edge:generic_key:login:user:ann
metric   edge.generic_key_login.user
`
	if code != 0 || out != want {
		t.Errorf("exit %d, %q\n%s\nwant\n%s", code, err, out, want)
	}
	if code, out, _ := sash(t, nil, "config", "explain", before, "user=ann", "--json"); code != 0 || !strings.Contains(out, `"rule":null`) && !strings.Contains(out, `"rule": null`) {
		t.Errorf("no rule: exit %d, %s", code, out)
	}
	if code, _, err := sash(t, nil, "config", "diff", before, after); code != 2 || !strings.Contains(err, "more.yaml:1: duplicate domain edge") {
		t.Errorf("a domain in two files: exit %d, %s", code, err)
	}
	code, out, _ = sash(t, nil, "config", "diff", before, after, "--merge-domains")
	want = `~ edge / generic_key=login / user: 2/1d by sliding-log -> 4/1d by sliding-log
+ edge / path="/api/*": refuses everything
`
	if code != 1 || out != want {
		t.Errorf("exit %d\n%s\nwant\n%s", code, out, want)
	}
	if code, out, _ := sash(t, nil, "config", "diff", before, before); code != 0 || out != "" {
		t.Errorf("the same: exit %d, %s", code, out)
	}
}
