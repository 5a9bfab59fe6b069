//go:build envoy

package main

import (
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"example.com/sash/internal/redistest"
	"example.com/sash/service/internal/servertest"
)

// 400 clients have requests in flight at once, more than one connection to Sash carries, and Sash asks Envoy for a new
// connection each second (GRPC_MAX_CONNECTION_AGE). No request fails, and each is charged once.
func TestRealEnvoyWithManyRequestsInFlight(t *testing.T) {
	redis := redistest.Start(t)
	p := serveIn(t, []string{"GRPC_MAX_CONNECTION_AGE=1s", "GRPC_MAX_CONNECTION_AGE_GRACE=20s"}, append(freePorts, "--redis", redis.Addr(), "--config", roomy(t), "--budget", patience)...)
	u := startUpstream(t)
	e := startEnvoy(t, envoyConfig(t, u, p))
	var failed, sent atomic.Int64
	var clients sync.WaitGroup
	for range 400 {
		clients.Go(func() {
			for range 25 {
				sent.Add(1)
				if res := through(e, "192.0.2.1"); res.Code != http.StatusOK {
					failed.Add(1)
				}
			}
		})
	}
	clients.Wait()
	if n := failed.Load(); n != 0 || e.stat("cluster.sash.upstream_cx_close_notify") == 0 {
		t.Errorf("%d of %d requests failed; Sash asked for %d new connections", n, sent.Load(), e.stat("cluster.sash.upstream_cx_close_notify"))
	}
	if left := peeked(t, p, "remote_address", "127.0.2.1"); left != 1_000_000-sent.Load() {
		t.Errorf("%d units are left after %d requests", left, sent.Load())
	}
}

// An Envoy without requests pings its connection each second, and the connection stays.
func TestRealEnvoyKeepsAnIdleConnection(t *testing.T) {
	p := startExample(t)
	e := startEnvoy(t, edited(t, envoyConfig(t, startUpstream(t), p), "{interval: 10s, timeout: 2s}", "{interval: 1s, timeout: 20s}"))
	if res := through(e, "192.0.2.1"); res.Code != http.StatusOK {
		t.Fatalf("%d", res.Code)
	}
	checks := e.stat("cluster.sash.health_check.success") // of both addresses each second, over other connections
	servertest.Wait(t, "Envoy does not check the health of Sash", func() bool { return e.stat("cluster.sash.health_check.success") >= checks+20 })
	if n := e.stat("cluster.sash.upstream_cx_destroy"); n != 0 {
		t.Errorf("%d connections were closed", n)
	}
}
