//go:build envoy

package main

import (
	"testing"

	"example.com/sash/internal/redistest"
	"example.com/sash/service/internal/servertest"
)

// With the example's filter a client gets 503 while Redis is killed or hangs, and nothing reaches the application. With
// failure_mode_deny: false everything does, uncounted. When Redis is back it decides.
func TestRealEnvoyFailureModes(t *testing.T) {
	for name, fault := range map[string]struct{ begin, end func(*redistest.Server) }{
		"killed": {(*redistest.Server).Stop, (*redistest.Server).Restart},
		"hung":   {(*redistest.Server).Pause, (*redistest.Server).Resume},
	} {
		t.Run(name, func(t *testing.T) {
			redis := redistest.Start(t)
			p := startExample(t, "--redis", redis.Addr(), "--instances", "1", "--budget", budget.String())
			closed, open := startUpstream(t), startUpstream(t)
			deny := startEnvoy(t, envoyConfig(t, closed, p))
			pass := startEnvoy(t, edited(t, envoyConfig(t, open, p), "failure_mode_deny: true", "failure_mode_deny: false"))
			for i, e := range []*realEnvoy{deny, pass} {
				servertest.Wait(t, "Redis does not decide", func() bool { return e.post(i, "/login", 0).Code == 429 })
			}

			fault.begin(redis)
			denied, allowed := closed.requests.Load(), open.requests.Load()
			uncounted := pass.stat("cluster.application.ratelimit.failure_mode_allowed")
			for range 8 { // more than any limit
				if res := deny.post(3, "/login", 0); res.Code != 503 {
					t.Errorf("deny: %d", res.Code)
				}
				if res := pass.post(4, "/login", 0); res.Code != 200 || res.Header().Get("X-Upstream") == "" {
					t.Errorf("pass: %d", res.Code)
				}
			}
			if n, m := closed.requests.Load()-denied, open.requests.Load()-allowed; n != 0 || m != 8 {
				t.Errorf("deny: %d requests reached the application, want 0; pass: %d, want 8", n, m)
			}
			if n := pass.stat("cluster.application.ratelimit.failure_mode_allowed") - uncounted; n != 8 {
				t.Errorf("Envoy counted %d of 8 that it let through", n)
			}

			fault.end(redis)
			for _, e := range []*realEnvoy{deny, pass} {
				servertest.Wait(t, "a limit refuses", func() bool { return e.post(5, "/login", 0).Code == 429 })
			}
		})
	}
}

// A rule's own failure mode answers before Envoy's: open admits, and local admits this instance's share.
func TestRealEnvoyHearsTheFailureModeOfARule(t *testing.T) {
	redis := redistest.Start(t)
	p := servePolicies(t, "--redis", redis.Addr(), "--instances", "1")
	u := startUpstream(t)
	e := startEnvoy(t, withFilter(t, envoyConfig(t, u, p), `
domain: d
timeout: 10s
failure_mode_deny: true
rate_limits:
  - {actions: [{request_headers: {header_name: x-open, descriptor_key: open}}]}
  - {actions: [{request_headers: {header_name: x-local, descriptor_key: local}}]}
  - {actions: [{request_headers: {header_name: x-closed, descriptor_key: closed}}]}
`))
	redis.Pause()
	for range 30 { // 20/1h
		if res := through(e, "192.0.2.1", "x-open", "a"); res.Code != 200 {
			t.Errorf("open: %d", res.Code)
		}
	}
	admitted := 0
	for range 30 {
		switch res := through(e, "192.0.2.1", "x-local", "a"); res.Code {
		case 200:
			admitted++
		case 429:
		default:
			t.Errorf("local: %d", res.Code)
		}
	}
	if admitted != 20 {
		t.Errorf("local: %d admitted, want 20", admitted)
	}
	if res := through(e, "192.0.2.1", "x-closed", "a"); res.Code != 500 {
		t.Errorf("closed: %d", res.Code)
	}
	redis.Resume()
}

// Envoy's own timeout of 20 ms is shorter than the budget of Sash, 50 ms: while Redis hangs Envoy gives requests up, until
// the breaker opens and the rule's failure mode answers. With a budget of 10 ms it has answers from the first request on,
// where the machine is not busy. Whatever Envoy gives up on is not admitted, and what it admits is charged.
func TestRealEnvoyWithItsOwnTimeout(t *testing.T) {
	for budget, givesUp := range map[string]bool{"50ms": true, "10ms": false} {
		t.Run(budget, func(t *testing.T) {
			redis := redistest.Start(t)
			p := servePolicies(t, "--redis", redis.Addr(), "--instances", "1", "--budget", budget)
			u := startUpstream(t)
			e := startEnvoy(t, withFilter(t, envoyConfig(t, u, p), `
domain: d
failure_mode_deny: true
rate_limits:
  - {actions: [{request_headers: {header_name: x-open, descriptor_key: open}}]}
  - {actions: [{request_headers: {header_name: x-local, descriptor_key: local}}]}
`))
			ask := func(header string) int { return through(e, "192.0.2.1", header, "a").Code }
			servertest.Wait(t, "the limit does not refuse", func() bool {
				status := ask("x-local")
				if status != 200 && status != 429 && status != 500 { // 500 where this machine is too slow for 20 ms
					t.Fatalf("with Redis: %d", status)
				}
				return status == 429
			})
			if n := u.requests.Load(); n > 20 {
				t.Errorf("%d of 20 requests were admitted", n)
			}

			redis.Pause()
			before, given, admitted := u.requests.Load(), 0, int64(0)
			servertest.Wait(t, "Envoy is not answered", func() bool {
				if status := ask("x-open"); status == 200 {
					admitted++
				} else {
					given++
				}
				return admitted == 20
			})
			t.Logf("Envoy gave %d requests up", given)
			if givesUp && given == 0 || given > 100 || u.requests.Load()-before != admitted {
				t.Errorf("%d requests were given up, %d admitted, and %d reached the application", given, admitted, u.requests.Load()-before)
			}
			if n := e.stat("cluster.application.ratelimit.error"); n < given {
				t.Errorf("Envoy counted %d of %d", n, given)
			}
			redis.Resume()
			servertest.Wait(t, "Redis does not decide", func() bool { return ask("x-local") == 429 })
		})
	}
}
