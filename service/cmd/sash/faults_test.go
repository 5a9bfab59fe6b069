package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"example.com/sash/internal/redistest"
	"example.com/sash/service/internal/servertest"
)

// One rule for each failure mode.
const policies = `
domain: d
descriptors:
  - {key: closed, limits: [1000/1h]}
  - {key: open, limits: [1000/1h], on_unavailable: open}
  - {key: local, limits: [20/1h], on_unavailable: local}
  - {key: cost, limits: [1000/1h], on_unavailable: {1: open, 20: local}}
  - {key: tried, limits: [1/1h], shadow_mode: true}
`

// An outcome is the service's answer.
type outcome struct {
	Remaining            int64
	Source, Cause, Error string

	status int
}

func (p *service) decide(t *testing.T, key string, cost int64) outcome {
	t.Helper()
	res, text := send(t, "POST", p.url+"/v1/allow", subject("d", key, "a", fmt.Sprint(`,"cost":`, cost)))
	o := decode[outcome](t, text)
	o.status = res.StatusCode
	return o
}

type health struct {
	Status, Store, Cause string
}

func (p *service) health(t *testing.T) health {
	t.Helper()
	code, text := get(t, p.url+"/healthz")
	if code != http.StatusOK {
		t.Fatalf("/healthz is %d: %s", code, text)
	}
	return decode[health](t, text)
}

// servePolicies starts a service with those rules.
func servePolicies(t *testing.T, args ...string) *service {
	t.Helper()
	return serve(t, append([]string{"--config", tempFile(t, "policies.yaml", policies), "--budget", budget.String()}, args...)...)
}

const budget = 100 * time.Millisecond

// While Redis is killed every rule's failure mode answers, with a cause. It comes back empty, and is charged what was admitted
// locally.
func TestServeWhenRedisIsKilled(t *testing.T) {
	server := redistest.Start(t)
	p := servePolicies(t, "--redis", server.Addr(), "--instances", "2")
	servertest.Wait(t, "Redis does not decide", func() bool { return p.decide(t, "closed", 1).Source == "store" })
	const share = 10 // half of 20
	server.Stop()
	check := func(key string, cost int64, status int, source string) {
		t.Helper()
		o := p.decide(t, key, cost)
		if o.status != status || o.Source != source || o.Cause == "" || o.Error == "" && key == "closed" {
			t.Errorf("%s at cost %d: %+v; want %d from %s, with a cause", key, cost, o, status, source)
		}
	}
	check("open", 1000, 200, "policy")
	check("cost", 1, 200, "policy")
	check("cost", 21, 503, "policy")
	check("tried", 1, 200, "policy")
	check("closed", 1, 503, "policy")
	check("cost", 20, 200, "local")
	for range share {
		check("local", 1, 200, "local")
	}
	check("local", 1, 429, "local")
	servertest.Wait(t, "the service is not degraded", func() bool { // failures that are quick take less time than a blip
		p.decide(t, "open", 1)
		h := p.health(t)
		return h.Status == "degraded" && h.Store != "up" && h.Cause != ""
	})
	server.Restart()
	servertest.Wait(t, "Redis is back, and does not decide", func() bool { return p.decide(t, "closed", 1).Source == "store" })
	servertest.Wait(t, "local charges are not written", func() bool { return server.Must(t, "EXISTS", "sash:log:d:local:a") == int64(1) })
	if o := p.decide(t, "local", 1); o.Remaining != 20-share-1 || o.Source != "store" {
		t.Errorf("after the %d units of before: %+v", share, o)
	}
	if h := p.health(t); h.Status != "ok" || h.Store != "up" {
		t.Errorf("health: %+v", h)
	}
	if logs := p.stopped(t); strings.Count(logs, "Redis is down: calls are answered") != 1 || strings.Count(logs, "Redis is back") != 1 {
		t.Errorf("logs: %s", logs)
	}
}

// What was admitted locally is written to Redis when the service stops, or the log says how much was lost.
func TestServeWritesLocalAdmissionsWhenItStops(t *testing.T) {
	for _, back := range []bool{true, false} {
		server := redistest.Start(t)
		p := servePolicies(t, "--redis", server.Addr(), "--instances", "2")
		server.Stop()
		p.decide(t, "closed", 1) // finds the broken connection: a call on it may have been charged
		for range 7 {
			if o := p.decide(t, "local", 1); o.status != 200 || o.Source != "local" {
				t.Fatalf("%+v", o)
			}
		}
		if back {
			server.Restart()
		}
		began := time.Now()
		logs := p.stopped(t)
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("the service took %v to stop", took)
		}
		if lost := strings.Contains(logs, "lost=7"); lost == back {
			t.Errorf("Redis is back: %v, and units are lost: %v; logs: %s", back, lost, logs)
		}
		if back {
			next := servePolicies(t, "--redis", server.Addr(), "--instances", "2")
			if o := next.decide(t, "local", 1); o.Source != "store" || o.Remaining != 20-7-1 {
				t.Errorf("the next instance finds %+v, want 12 of 20 units left; logs: %s", o, logs)
			}
		}
	}
}
