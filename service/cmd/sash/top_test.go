package main

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.com/sash/internal/redistest"
	"example.com/sash/service/internal/servertest"
	"example.com/sash/service/internal/wire"
)

// Scripts get one state; subjects are shown only with the token.
func TestTop(t *testing.T) {
	file := tempFile(t, "token", adminToken+"\n")
	p := serve(t, "--admin-token-file", file)
	for i := range 12 {
		if status, say := allow(t, p, "192.0.2.5"); status != 200 && i < 10 {
			t.Fatal(status, say)
		}
	}
	servertest.Wait(t, "the counts are not there", func() bool {
		_, out, _ := sash(t, nil, "top", "--admin", p.admin, "--json")
		var state struct {
			Authenticated bool
			Requests      struct {
				Count struct{ Allowed, Refused int }
			}
			Top any
		}
		if err := json.Unmarshal([]byte(out), &state); err != nil || state.Authenticated || state.Top != nil || strings.Count(out, "\n") != 1 {
			t.Fatal(out, err)
		}
		return state.Requests.Count.Allowed == 10 && state.Requests.Count.Refused == 2
	})
	code, out, failed := sash(t, []string{"SASH_ADMIN_TOKEN=" + adminToken}, "top", "--admin", p.admin, "--once")
	for _, want := range []string{"demo.remote_address", "Hottest subjects", "demo:remote_address:192.0.2.5     12    refused", "store memory"} {
		if !strings.Contains(out, want) {
			t.Errorf("there is no %q: %d %s%s", want, code, out, failed)
		}
	}
	if code, out, _ := sash(t, nil, "top", "--admin", p.admin); code != 0 || strings.Contains(out, "192.0.2.5") || !strings.Contains(out, "hidden: pass the admin token") {
		t.Errorf("without a token, to no terminal: %d %s", code, out)
	}
	for i, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--admin", p.url}, "is no admin port of sash serve"},
		{[]string{"--admin", "localhost:6070"}, "give a URL such as"},
		{[]string{"--admin", "http://127.0.0.1:1"}, "is sash serve running there"},
		{[]string{"--admin", p.admin, "--token-file", os.DevNull}, "is empty"},
	} {
		if code, _, failed := sash(t, nil, append([]string{"top"}, c.args...)...); code != 2 || !strings.Contains(failed, c.want) {
			t.Errorf("%d: %d %s, want %q", i, code, failed, c.want)
		}
	}
	if code, _, failed := sash(t, []string{"SASH_ADMIN_TOKEN=" + strings.Repeat("x", 20)}, "top", "--admin", p.admin); code != 2 || !strings.Contains(failed, "does not accept this token") {
		t.Errorf("with a wrong token: %d %s", code, failed)
	}
}

// An open dashboard does not delay the end of the service.
func TestServeEndsWhileAClientWatches(t *testing.T) {
	p := serve(t)
	req := newRequest(t, http.MethodGet, p.admin+"/admin/v1/events", nil)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if _, err := res.Body.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := p.stop(t); err != nil || strings.Contains(p.logs.String(), "requests in flight:") {
		t.Errorf("the service ended with %v: %s", err, p.logs)
	}
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		t.Errorf("the stream ended with %v", err)
	}
}

// In an outage sash top names Redis, the cause and what nobody counted, as text and as JSON.
func TestTopInAnOutage(t *testing.T) {
	rules := filepath.Join(t.TempDir(), "limits.yaml")
	put(t, rules, "domain: demo\ndescriptors:\n- {key: open, limits: [20/1h], on_unavailable: open}\n- {key: closed, limits: [20/1h]}\n")
	redis := redistest.Start(t)
	p := serve(t, "--redis", "redis://"+redis.Addr(), "--config", rules)
	redis.Stop()
	for range 100 {
		post(t, p.url+"/v1/allow", `{"domain":"demo","entries":[{"key":"open","value":"ann"}]}`)
		post(t, p.url+"/v1/allow", `{"domain":"demo","entries":[{"key":"closed","value":"ann"}]}`)
	}
	var state wire.Event
	servertest.Wait(t, "the counts are not there", func() bool {
		_, out, _ := sash(t, nil, "top", "--admin", p.admin, "--json")
		if err := json.Unmarshal([]byte(out), &state); err != nil {
			t.Fatal(out, err)
		}
		return state.Store.Status == "degraded" && state.Requests.Count.Uncounted == 100
	})
	if s := state.Store; *s.Address != redis.Addr() || *s.Cause != "refused" || *s.Reason != "accepts no connections" || s.Since == nil || s.Uncounted != 100 || s.Error != nil {
		t.Errorf("the store is %+v", s)
	}
	if n := state.Requests.Count; n.Allowed != 0 || n.Failed != 100 {
		t.Errorf("requests are counted as %+v", n)
	}
	for _, rule := range state.Rules {
		if s := rule.Share; s.Refused != nil || *s.Uncounted+*s.Failed != 1 {
			t.Errorf("the shares of %s are %+v", rule.Rule, s)
		}
	}
	_, out, _ := sash(t, nil, "top", "--admin", p.admin, "--once")
	if !strings.Contains(out, "Redis at "+redis.Addr()+" accepts no connections (refused) since ") || !strings.Contains(out, "100 requests went ahead uncounted since then") {
		t.Errorf("the text is\n%s", out)
	}
}
