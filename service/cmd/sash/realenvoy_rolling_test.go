//go:build envoy

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"example.com/sash/internal/redistest"
	"example.com/sash/service/internal/servertest"
)

// roomy is the example's configuration for a test that sends many requests, on a machine that may be slow.
func roomy(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "policy.yaml")
	put(t, file, edited(t, readExample(t, "policy.yaml"), `["5/10s", "300/1h"]`, `["1000000/1h"]`))
	return file
}

// Two instances are restarted one after the other, as the example starts them, while clients send requests. Envoy keeps
// its HTTP/2 connections to both. No request fails, and each is charged once.
func TestRealEnvoyThroughARollingRestart(t *testing.T) {
	redis := redistest.Start(t)
	flags := []string{"--redis", redis.Addr(), "--config", roomy(t), "--drain-delay", "5s", "--budget", patience}
	instances := []*service{spawn(t, nil, flags...), spawn(t, nil, flags...)}
	u := startUpstream(t)
	e := startEnvoy(t, envoyConfig(t, u, instances...))

	var sent, failed atomic.Int64
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				sent.Add(1)
				if res := through(e, "192.0.2.1"); res.Code != http.StatusOK {
					failed.Add(1)
				}
			}
		})
	}
	for i := range instances {
		before := sent.Load()
		if err := instances[i].stop(t); err != nil {
			t.Errorf("an instance ended with %v: %s", err, instances[i].logs)
		}
		servertest.Wait(t, "Envoy does not miss the instance", func() bool { return e.stat("cluster.sash.membership_healthy") == 1 })
		instances[i] = spawn(t, nil, append(flags, "--grpc-addr", instances[i].grpc)...)
		servertest.Wait(t, "Envoy does not find the instance again", func() bool { return e.stat("cluster.sash.membership_healthy") == 2 })
		during := sent.Load() - before
		servertest.Wait(t, "no requests", func() bool { return sent.Load()-before > during+100 })
		t.Logf("%d requests during the restart", during)
	}
	close(stop)
	clients.Wait()
	if n := failed.Load(); n != 0 {
		t.Errorf("%d of %d requests failed; Envoy had %d errors", n, sent.Load(), e.stat("cluster.application.ratelimit.error"))
	}
	if n := u.requests.Load(); n != sent.Load() {
		t.Errorf("%d of %d requests reached the application", n, sent.Load())
	}
	if left := peeked(t, instances[0], "remote_address", "127.0.2.1"); left != 1_000_000-sent.Load() {
		t.Errorf("%d units are left after %d requests", left, sent.Load())
	}
	// Each of Envoy's two workers has a connection to each instance, before and after its restart, and may begin another
	// one while it waits for the first.
	if n := e.stat("cluster.sash.upstream_cx_http2_total"); n > 50 {
		t.Errorf("%d connections for %d requests", n, sent.Load())
	}
}

// peeked returns the units that are left to a subject of domain web.
func peeked(t *testing.T, p *service, key, value string) int64 {
	t.Helper()
	body := fmt.Sprintf(`{"domain":"web","entries":[{"key":%q,"value":%q}]}`, key, value)
	res, err := http.Post(p.url+"/v1/peek", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	var o outcome
	if err := json.NewDecoder(res.Body).Decode(&o); err != nil || res.StatusCode != 200 {
		t.Fatalf("%d: %v", res.StatusCode, err)
	}
	return o.Remaining
}
