package main

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"example.com/sash/internal/redistest"
	"example.com/sash/service/internal/servertest"
)

var curlLine = regexp.MustCompile(`curl -i -H 'Content-Type: application/json' -d '([^']*)' (http://\S+)`)

func TestServeSaysWhereItIsAndHowToTryIt(t *testing.T) {
	p := serve(t)
	for _, want := range []string{p.url, "this process's memory", "the built-in example: domains demo"} {
		if !strings.Contains(p.greets, want) {
			t.Errorf("%q is not in\n%s", want, p.greets)
		}
	}
	line := curlLine.FindStringSubmatch(p.greets)
	if line == nil {
		t.Fatalf("no curl line in\n%s", p.greets)
	}
	for call := 1; call <= 11; call++ {
		got, body := post(t, line[2], line[1])
		if want := map[bool]int{true: 200, false: 429}[call <= 10]; got != want {
			t.Errorf("call %d: %d %v, want %d", call, got, body, want)
		}
	}
}

func TestServeEndsCleanlyOnSIGTERM(t *testing.T) {
	p := spawn(t, nil)
	get(t, p.url+"/healthz")
	if err := p.stop(t); err != nil {
		t.Errorf("the service ended with %v: %s", err, p.logs)
	}
	if !strings.Contains(p.logs.String(), "stopped") {
		t.Errorf("logs: %s", p.logs)
	}
}

func TestServeWithoutItsRedis(t *testing.T) {
	server := redistest.Start(t)
	p := serve(t, "--redis", server.Addr())
	if !strings.Contains(p.greets, "redis at "+server.Addr()) {
		t.Errorf("it says\n%s", p.greets)
	}
	server.Stop()
	res, err := http.Post(p.url+"/v1/allow", "application/json", strings.NewReader(`{"domain":"demo","entries":[{"key":"remote_address","value":"a"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != 503 || res.Header.Get("Retry-After") == "" {
		t.Errorf("%d, Retry-After %q", res.StatusCode, res.Header.Get("Retry-After"))
	}
	if err := p.stop(t); err != nil {
		t.Errorf("the service ended with %v", err)
	}
	if !strings.Contains(p.logs.String(), server.Addr()) {
		t.Errorf("the log does not name the address: %s", p.logs)
	}
}

func TestServeStartsWithoutRedisAndUsesItLater(t *testing.T) {
	server := redistest.Start(t)
	server.Stop()
	p := serve(t, "--redis", "redis://:secret@"+server.Addr())
	ask := func() int {
		status, _ := post(t, p.url+"/v1/allow", `{"domain":"demo","entries":[{"key":"remote_address","value":"a"}]}`)
		return status
	}
	for range 100 {
		if status := ask(); status != 503 {
			t.Fatalf("without Redis: %d", status)
		}
	}
	server.Restart()
	server.Must(t, "CONFIG", "SET", "requirepass", "secret")
	servertest.Wait(t, "Redis is there, and decisions are not", func() bool { return ask() == 200 })
	if err := p.stop(t); err != nil {
		t.Errorf("the service ended with %v", err)
	}
	if logs := p.logs.String(); !strings.Contains(logs, "Redis does not answer") || strings.Contains(logs, "secret") {
		t.Errorf("logs: %s", logs)
	}
}

func TestServeDoesNotStartOnAMistake(t *testing.T) {
	taken := serve(t)
	file := tempFile(t, "bad.yaml", "domain: d\ndescriptors:\n- key: a\n  limits: [5]\n")
	rights := tempFile(t, "rights.yaml", "anonymous:\n  allow: [admin]\n")
	for name, tt := range map[string]struct {
		args []string
		say  string
	}{
		"bad configuration":       {[]string{"--config", file}, "bad.yaml:4:"},
		"no such file":            {[]string{"--config", file + "x"}, "no such file"},
		"address taken":           {[]string{"--addr", strings.TrimPrefix(taken.url, "http://")}, "cannot listen on"},
		"not a Redis URL":         {[]string{"--redis", "http://127.0.0.1"}, "not a Redis URL"},
		"unknown flag":            {[]string{"--port", "1"}, "unknown flag: --port (see sash serve --help)"},
		"an argument that is not": {[]string{"limits.yaml"}, "limits.yaml"},
		"bad level":               {[]string{"--log-level", "loud"}, "debug, info"},
		"no right of that name":   {[]string{"--access", rights}, `rights.yaml:2: there is no right "admin"`},
		"no file of rights":       {[]string{"--access", rights + "x"}, "--access: open"},
	} {
		code, out, err := sash(t, nil, append([]string{"serve", "--addr", "127.0.0.1:0"}, tt.args...)...)
		if code != 2 || out != "" || !strings.Contains(err, tt.say) || strings.Contains(err, "secret") {
			t.Errorf("%s: exit %d, %q, %q; want 2 and %q", name, code, out, err, tt.say)
		}
	}
}
