package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
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

// An outcome is the service's answer, and how long it took.
type outcome struct {
	Allowed   bool   `json:"allowed"`
	Remaining int64  `json:"remaining"`
	Source    string `json:"source"`
	Cause     string `json:"cause"`
	Error     string `json:"error"`

	status int
	took   time.Duration
}

func (p *service) decide(t *testing.T, key string, cost int64) outcome {
	t.Helper()
	body := fmt.Sprintf(`{"domain":"d","entries":[{"key":%q,"value":"a"}],"cost":%d}`, key, cost)
	began := time.Now()
	res, err := http.Post(p.url+"/v1/allow", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	o := outcome{status: res.StatusCode}
	if err := json.NewDecoder(res.Body).Decode(&o); err != nil {
		t.Fatal(err)
	}
	o.took = time.Since(began)
	return o
}

func (p *service) health(t *testing.T) (h struct {
	Status, Store, Cause string
	Instances            int
}) {
	t.Helper()
	res, err := http.Get(p.url + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if err := json.NewDecoder(res.Body).Decode(&h); err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("/healthz is %d: %v", res.StatusCode, err)
	}
	return h
}

// servePolicies starts a service with those rules.
func servePolicies(t *testing.T, args ...string) *service {
	t.Helper()
	file := tempFile(t, "policies.yaml", policies)
	return serve(t, append([]string{"--config", file, "--budget", budget.String()}, args...)...)
}

const (
	budget = 100 * time.Millisecond
	// slack is for a busy machine: the promise is the budget and 10 ms. Half of all answers must keep that, and every
	// answer the slack.
	slack = time.Second
)

// degraded checks over HTTP and gRPC that every rule's failure mode answers, in time and with a cause.
func (p *service) degraded(t *testing.T, share int64) {
	t.Helper()
	inTime, all := 0, 0
	ask := []func(*testing.T, string, int64) outcome{p.decide, p.overGRPC(t, 10*time.Second)}
	one := func(i int, key string, cost int64, status int, source string) {
		t.Helper()
		o := ask[i](t, key, cost)
		if o.status != status || i == 0 && (o.Source != source || o.Cause == "" || o.Error == "" && key == "closed") {
			t.Errorf("%s at cost %d: %+v; want %d from %s, with a cause", key, cost, o, status, source)
		}
		if all++; o.took <= budget+10*time.Millisecond {
			inTime++
		} else if o.took > budget+slack {
			t.Errorf("%s at cost %d took %v", key, cost, o.took)
		}
	}
	check := func(key string, cost int64, status int, source string) {
		t.Helper()
		for i := range ask {
			one(i, key, cost, status, source)
		}
	}
	for range 10 {
		check("open", 1000, 200, "policy")
		check("cost", 1, 200, "policy")
		check("cost", 21, 503, "policy")
		check("tried", 1, 200, "policy")
		check("closed", 1, 503, "policy")
	}
	check("cost", 20, map[bool]int{true: 200, false: 429}[share > 0], "local")
	for i := range share { // shared by both protocols
		one(int(i)%len(ask), "local", 1, 200, "local")
	}
	check("local", 1, 429, "local")
	if inTime < all/2 {
		t.Errorf("%d of %d answers took longer than the budget and 10 ms", all-inTime, all)
	}
	t.Logf("%d of %d answers within the budget and 10 ms", inTime, all)
	servertest.Wait(t, "the service is not degraded", func() bool { // failures that are quick take less time than a blip
		p.decide(t, "open", 1)
		h := p.health(t)
		return h.Status == "degraded" && h.Store != "up" && h.Cause != ""
	})
}

// recovered waits until Redis decides again.
func (p *service) recovered(t *testing.T) {
	t.Helper()
	servertest.Wait(t, "Redis is back, and does not decide", func() bool { return p.decide(t, "closed", 1).Source == "store" })
	envoy := p.overGRPC(t, 10*time.Second)
	servertest.Wait(t, "Redis is back, and gRPC is not let through", func() bool { return envoy(t, "closed", 1).status == 200 })
	if h := p.health(t); h.Status != "ok" || h.Store != "up" {
		t.Errorf("health: %+v", h)
	}
}

// normal waits until Redis decides about every key in time, which a busy machine may delay. It returns the number of
// calls for the key local.
func (p *service) normal(t *testing.T) (local int64) {
	t.Helper()
	for _, key := range []string{"closed", "open", "local", "cost"} {
		servertest.Wait(t, "Redis does not decide about "+key, func() bool {
			if key == "local" {
				local++
			}
			o := p.decide(t, key, 1)
			return o.status == 200 && o.Source == "store" && o.Cause == ""
		})
	}
	return local
}

func TestServeWhenRedisIsKilledAndComesBackEmpty(t *testing.T) {
	server := redistest.Start(t)
	p := servePolicies(t, "--redis", server.Addr(), "--instances", "2")
	share := 10 - p.normal(t) // half of 20, less what was used before
	server.Stop()
	p.degraded(t, share)
	server.Restart()
	p.recovered(t)
	// The new Redis, which is empty, is charged what was admitted locally.
	servertest.Wait(t, "local charges are not written", func() bool { return server.Must(t, "EXISTS", "sash:log:d:local:a") == int64(1) })
	if o := p.decide(t, "local", 1); o.Remaining != 20-share-1 || o.Source != "store" {
		t.Errorf("after the %d units of before: %+v", share, o)
	}
	if logs := p.stopped(t); strings.Count(logs, "Redis is down: calls are answered") != 1 || strings.Count(logs, "Redis is back") != 1 {
		t.Errorf("logs: %s", logs)
	}
}

func TestServeWhenRedisHangs(t *testing.T) {
	server := redistest.Start(t)
	p := servePolicies(t, "--redis", server.Addr(), "--instances", "2")
	share := 10 - p.normal(t)
	server.Pause()
	p.degraded(t, share)
	server.Resume()
	p.recovered(t)
	p.stopped(t)
}

// Without a single call, /healthz follows a Redis that hangs from the start, comes back, and hangs again; and so it does
// where connections are accepted and nobody ever answers.
func TestHealthFollowsRedisWithoutCalls(t *testing.T) {
	follows := func(t *testing.T, p *service, status string) {
		t.Helper()
		began := time.Now()
		servertest.Wait(t, "/healthz does not say "+status, func() bool { return p.health(t).Status == status })
		took := time.Since(began)
		t.Logf("%s after %v", status, took.Round(10*time.Millisecond))
		if took > 6*time.Second { // the promise is 3 s; a busy machine takes its time
			t.Errorf("%s after %v", status, took)
		}
		want := map[string]float64{"degraded": 1}[status]
		if got := scrape(t, p)["sash_degraded"].Metric[0].GetGauge().GetValue(); got != want {
			t.Errorf("/healthz says %s, and sash_degraded is %v", status, got)
		}
	}
	t.Run("hangs", func(t *testing.T) {
		server := redistest.Start(t)
		server.Pause()
		p := servePolicies(t, "--redis", server.Addr(), "--instances", "2")
		follows(t, p, "degraded")
		server.Resume()
		follows(t, p, "ok")
		server.Pause()
		follows(t, p, "degraded")
		server.Resume()
		follows(t, p, "ok")
		p.stopped(t)
	})
	t.Run("black hole", func(t *testing.T) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = listener.Close() }()
		p := servePolicies(t, "--redis", listener.Addr().String(), "--instances", "2")
		follows(t, p, "degraded")
		p.stopped(t)
	})
}

// With --open-per-second, on_unavailable: open lets so many units through in a second, and is closed beyond.
func TestServeHasACeilingForOpen(t *testing.T) {
	server := redistest.Start(t)
	server.Stop()
	p := servePolicies(t, "--redis", server.Addr(), "--open-per-second", "2500")
	admitted, closed := 0, 0
	for began := time.Now(); closed == 0 && time.Since(began) < 10*time.Second; {
		switch o := p.decide(t, "open", 1000); {
		case o.status == 200 && o.Source == "policy":
			admitted++
		case o.status == 503 && o.Cause != "":
			closed++
		default:
			t.Fatalf("%+v", o)
		}
	}
	if admitted < 2 || closed == 0 {
		t.Errorf("%d calls of 1000 units were let through, %d were not", admitted, closed)
	}
	p.stopped(t)
}

// Without Redis from the start failure modes answer too, and later Redis counts the instances.
func TestServeStartsWithoutRedisAndUsesFailureModes(t *testing.T) {
	server := redistest.Start(t)
	server.Stop()
	p := servePolicies(t, "--redis", server.Addr())
	p.degraded(t, 0) // instances are not counted yet: no share
	servePolicies(t, "--redis", server.Addr(), "--instances", "4").degraded(t, 5)
	server.Restart()
	p.recovered(t)
	servertest.Wait(t, "the instances are not counted", func() bool { return p.health(t).Instances == 2 })
	other := servePolicies(t, "--redis", server.Addr())
	servertest.Wait(t, "the other instance is not counted", func() bool { return p.health(t).Instances == 3 && other.health(t).Instances == 3 })
	p.stopped(t)
}

// What was admitted locally is written to Redis when the service stops, or the log says how much was lost.
func TestServeWritesLocalAdmissionsWhenItStops(t *testing.T) {
	for name, back := range map[string]bool{"Redis is back": true, "Redis is gone": false} {
		t.Run(name, func(t *testing.T) {
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
			if err := p.stop(t); err != nil {
				t.Errorf("the service ended with %v", err)
			}
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("the service took %v to stop", took)
			}
			logs := p.logs.String()
			if lost := strings.Contains(logs, "lost=7"); lost == back {
				t.Errorf("lost: %v; logs: %s", lost, logs)
			}
			if !back {
				return
			}
			next := servePolicies(t, "--redis", server.Addr(), "--instances", "2")
			if o := next.decide(t, "local", 1); o.Source != "store" || o.Remaining != 20-7-1 {
				t.Errorf("the next instance finds %+v, want 12 of 20 units left; logs: %s", o, logs)
			}
		})
	}
}

// A Redis that refuses the password is logged, and failure modes answer.
func TestServeWithTheWrongPassword(t *testing.T) {
	server := redistest.Start(t, "--requirepass", "right")
	p := servePolicies(t, "--redis", "redis://:secret@"+server.Addr(), "--instances", "1")
	p.degraded(t, 20)
	logs := p.stopped(t)
	if n := strings.Count(logs, "rejects this service's calls"); n < 1 || n > 3 || strings.Contains(logs, "secret") {
		t.Errorf("it is logged %d times: %s", n, logs)
	}
}

// With --replicas, the failure mode answers if too few replicas confirm an admission.
func TestServeWaitsForReplicas(t *testing.T) {
	primary := redistest.Start(t, "--hz", "100")
	replica := redistest.StartReplica(t, primary.Addr())
	p := servePolicies(t, "--redis", primary.Addr(), "--instances", "1", "--replicas", "1")
	p.normal(t)
	servertest.Wait(t, "the replica was not waited for", func() bool {
		stats, _ := primary.Must(t, "INFO", "commandstats").(string)
		return strings.Contains(stats, "cmdstat_wait:")
	})
	replica.Pause()
	for range 3 {
		if o := p.decide(t, "closed", 1); o.status != 503 || o.Source != "policy" || o.Cause != "replicas" && o.Cause != "budget" {
			t.Errorf("without the replica: %+v", o)
		}
	}
	replica.Resume()
	p.recovered(t)
	p.stopped(t)
}

// GET /healthcheck, for load balancers, fails without Redis only if the environment says so.
func TestHealthcheckWithoutRedis(t *testing.T) {
	server := redistest.Start(t)
	file := filepath.Join(t.TempDir(), "policies.yaml")
	put(t, file, policies)
	args := []string{"--config", file, "--redis", server.Addr()}
	for variable, down := range map[string]int{"REDIS_HEALTH_CHECK_ACTIVE_CONNECTION=false": 200, "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION=true": 500} {
		server.Restart()
		p := serveIn(t, []string{"REDIS_SOCKET_TYPE=tcp", variable}, append(freePorts, args...)...)
		if status, text := get(t, p.url+"/healthcheck"); status != 200 || text != "OK" {
			t.Errorf("%s: %d %q with Redis", variable, status, text)
		}
		server.Pause()
		if status, _ := get(t, p.url+"/healthcheck"); status != down {
			t.Errorf("%s: %d while Redis hangs, want %d", variable, status, down)
		}
		server.Resume()
		server.Stop()
		servertest.Wait(t, variable+": the answer without Redis is another", func() bool { status, _ := get(t, p.url+"/healthcheck"); return status == down })
		server.Restart()
		servertest.Wait(t, variable+": Redis is back, and it is not healthy", func() bool { status, text := get(t, p.url+"/healthcheck"); return status == 200 && text == "OK" })
		if logs := p.stopped(t); strings.Contains(logs, "not ready") != (down == 500) {
			t.Errorf("%s: logs: %s", variable, logs)
		}
	}
}

// stopped ends the service and returns what it logged.
func (p *service) stopped(t *testing.T) string {
	t.Helper()
	if err := p.stop(t); err != nil {
		t.Errorf("the service ended with %v", err)
	}
	return p.logs.String()
}
