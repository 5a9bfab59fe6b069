package main

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"example.com/sash/internal/redistest"
)

// A key that holds something else gets no decision at any port, in any failure mode but that of a rule that does not
// bind: the caller learns that this call is rejected, and not that Redis failed. Redis decides all others.
func TestARejectedKeyAtThePorts(t *testing.T) {
	server := redistest.Start(t)
	p := servePolicies(t, "--redis", server.Addr(), "--instances", "1")
	p.normal(t)
	for _, key := range []string{"closed", "open", "local", "cost", "tried"} {
		server.Must(t, "DEL", "sash:log:d:"+key+":a")
		server.Must(t, "LPUSH", "sash:log:d:"+key+":a", "x")
	}
	envoy := p.overGRPC(t, 10*time.Second)
	for range 10 {
		for key, status := range map[string]int{"closed": 503, "open": 503, "local": 503, "cost": 503, "tried": 200} {
			o := p.decide(t, key, 1)
			if o.status != status || o.Cause != "rejected" || status == 503 && !strings.Contains(o.Error, "the key holds something else") {
				t.Errorf("%s over HTTP: %+v", key, o)
			}
			if o := envoy(t, key, 1); o.status != status {
				t.Errorf("%s through Envoy: %d", key, o.status)
			}
			ask := newRequest(t, http.MethodGet, p.url+"/v1/forward-auth?domain=d&descriptor="+key+"=a", nil)
			ask.Header.Set("X-Forwarded-For", "192.0.2.7")
			res, err := http.DefaultClient.Do(ask)
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			if res.StatusCode != status || status == 503 && res.Header.Get("Retry-After") == "" {
				t.Errorf("%s at forward-auth: %d, Retry-After %q", key, res.StatusCode, res.Header.Get("Retry-After"))
			}
		}
	}
	if h := p.health(t); h.Status != "ok" || h.Store != "up" {
		t.Errorf("health: %+v", h)
	}
	server.Must(t, "DEL", "sash:log:d:open:a")
	if o := p.decide(t, "open", 1); o.status != 200 || o.Source != "store" {
		t.Errorf("the key was deleted: %+v", o)
	}
	if _, metrics := get(t, p.admin+"/metrics"); !strings.Contains(metrics, `sash_store_failures_total{cause="rejected"} 150`) ||
		!strings.Contains(metrics, "sash_requests_total{outcome=\"uncounted\"} 0") {
		t.Errorf("not 150 rejected calls:\n%s", metrics)
	}
	if logs := p.stopped(t); !strings.Contains(logs, "rejects calls on one key") || strings.Contains(logs, "Redis is down") {
		t.Errorf("logs: %s", logs)
	}
}
