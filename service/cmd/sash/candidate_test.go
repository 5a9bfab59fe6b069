package main

import (
	"path/filepath"
	"strings"
	"testing"

	"example.com/sash/internal/redistest"
	"example.com/sash/service/internal/servertest"
)

const webRule = "domain: web\ndescriptors:\n- key: remote_address\n  limits: [4/1h]\n"

// A changed configuration has a running service watch, enforce and promote a candidate. Its answers, counters and log
// show each step.
func TestServeTriesACandidateOut(t *testing.T) {
	file := filepath.Join(t.TempDir(), "web.yaml")
	put(t, file, webRule+"  candidate: {limits: [2/1h]}\n")
	redis := redistest.Start(t).Addr()
	p := serve(t, "--config", file, "--budget", "10s", "--show-keys", "--redis", redis)
	ask := func(client string) int {
		t.Helper()
		status, _ := post(t, p.url+"/v1/allow", `{"domain":"web","entries":[{"key":"remote_address","value":"`+client+`"}]}`)
		return status
	}
	for n, want := range []int{200, 200, 200, 200, 429} {
		if got := ask("192.0.2.7"); got != want {
			t.Errorf("request %d: %d", n, got)
		}
	}
	for _, want := range []string{"total_hits: 5", "within_limit: 2", "over_limit: 3", "shadow_mode: 3"} {
		if _, text := get(t, p.admin+"/stats"); !strings.Contains(text, "rate_limit.web.remote_address.candidate."+want+"\n") {
			t.Errorf("no candidate.%s in\n%s", want, text)
		}
	}
	if _, text := get(t, p.admin+"/metrics"); !strings.Contains(text, `ratelimit_service_rate_limit_over_limit{domain="web",key1="remote_address",key2="candidate"} 3`) {
		t.Errorf("no counter of the candidate for Prometheus in\n%s", text)
	}
	env := []string{"SASH_REDIS=" + redis}
	if code, out, err := sash(t, env, "inspect", "--limit", "2/1h", "candidate:web:remote_address:192.0.2.7"); code != 0 || !strings.Contains(out, "2/1h: 2 used, 0 left") {
		t.Errorf("the candidate's own key: exit %d, %s%s", code, out, err)
	}

	put(t, file, webRule+"  candidate: {limits: [2/1h], enforce_percent: 100}\n")
	servertest.Wait(t, "the candidate is not enforced", func() bool {
		_, text := get(t, p.admin+"/rlconfig")
		return strings.Contains(text, "enforced for 100%")
	})
	for n, want := range []int{200, 200, 429} {
		if got := ask("192.0.2.8"); got != want {
			t.Errorf("request %d of another client: %d", n, got)
		}
	}
	put(t, file, strings.ReplaceAll(webRule, "4/1h", "2/1h"))
	servertest.Wait(t, "the candidate is not promoted", func() bool {
		_, text := get(t, p.admin+"/rlconfig")
		return strings.Contains(text, "web.remote_address: 2/1h by sliding-log\n")
	})
	if got := ask("192.0.2.8"); got != 429 {
		t.Errorf("after the promotion: %d", got)
	}
	if err := p.stop(t); err != nil {
		t.Error(err)
	}
	if logs := p.logs.String(); strings.Count(logs, "a candidate would have refused what was allowed") != 2 || !strings.Contains(logs, "key=web:remote_address:192.0.2.7") {
		t.Errorf("logs: %s", logs)
	}
}

func TestConfigCommandsKnowCandidates(t *testing.T) {
	dir := t.TempDir()
	before, after := filepath.Join(dir, "before.yaml"), filepath.Join(dir, "after.yaml")
	put(t, before, webRule+"  candidate: {limits: [2/1h]}\n")
	put(t, after, webRule+"  candidate: {limits: [2/1h], enforce_percent: 100}\n")

	code, out, err := sash(t, nil, "config", "check", after)
	want := "web / remote_address: 4/1h by sliding-log\nweb / remote_address: candidate 2/1h by sliding-log, enforced for 100%\n"
	if code != 0 || out != want {
		t.Errorf("check: exit %d, %s%s", code, out, err)
	}
	code, out, _ = sash(t, nil, "config", "diff", before, after)
	if code != 1 || !strings.HasSuffix(out, "not enforced -> 4/1h by sliding-log, candidate 2/1h by sliding-log, enforced for 100%\n") {
		t.Errorf("diff: exit %d, %s", code, out)
	}
	for file, want := range map[string]string{
		before: "held to  the limits; the candidate is watched on candidate:web:remote_address:192.0.2.7\n",
		after:  "held to  the candidate: this subject is one of the 100%\n",
	} {
		if code, out, _ := sash(t, nil, "config", "explain", file, "remote_address=192.0.2.7"); code != 0 || !strings.Contains(out, want) {
			t.Errorf("explain: exit %d, %s", code, out)
		}
	}
	if code, out, _ := sash(t, nil, "config", "explain", "--json", after, "remote_address=192.0.2.7"); code != 0 || !strings.Contains(out, `"candidate_enforced":true`) {
		t.Errorf("explain in JSON: exit %d, %s", code, out)
	}
	if code, _, err := sash(t, nil, "config", "check", dir); code != 2 || !strings.Contains(err, "duplicate") {
		t.Errorf("two files: exit %d, %s", code, err)
	}
}
