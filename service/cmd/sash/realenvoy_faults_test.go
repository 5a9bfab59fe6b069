//go:build envoy

package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	bootstrap "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/lua/v3" // in envoy.yaml, as the next ones
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	rls "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

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
			decides := func(client int) {
				t.Helper()
				for i, e := range []*realEnvoy{deny, pass} {
					servertest.Wait(t, "Redis does not decide", func() bool { return e.post(client+i, "/login", 0).StatusCode == 429 })
				}
			}
			decides(0)
			fault.begin(redis)
			denied, allowed := closed.requests.Load(), open.requests.Load()
			uncounted := pass.stat("cluster.application.ratelimit.failure_mode_allowed")
			for range 8 { // more than any limit
				if a, b := deny.post(3, "/login", 0), pass.post(4, "/login", 0); a.StatusCode != 503 || b.StatusCode != 200 {
					t.Errorf("deny: %d, pass: %d", a.StatusCode, b.StatusCode)
				}
			}
			if n, m := closed.requests.Load()-denied, open.requests.Load()-allowed; n != 0 || m != 8 {
				t.Errorf("deny: %d requests reached the application, want 0; pass: %d, want 8", n, m)
			}
			if n := pass.stat("cluster.application.ratelimit.failure_mode_allowed") - uncounted; n != 8 {
				t.Errorf("Envoy counted %d of 8 that it let through", n)
			}
			fault.end(redis)
			decides(5)
		})
	}
}

// roomy is the example's configuration for a test that sends many requests.
func roomy(t *testing.T) string {
	t.Helper()
	return tempFile(t, "policy.yaml", edited(t, readExample(t, "policy.yaml"), `["5/10s", "300/1h"]`, `["1000000/1h"]`))
}

// charged checks that all requests of client 1 were admitted, and each was charged once.
func charged(t *testing.T, p *service, u *upstream, sent, failed int64) {
	t.Helper()
	if left := peeked(t, p, "remote_address", "127.0.2.1"); failed != 0 || u.requests.Load() != sent || left != 1_000_000-sent {
		t.Errorf("of %d requests %d failed and %d reached the application; %d units are left", sent, failed, u.requests.Load(), left)
	}
}

// Two instances are restarted one after the other, as the example starts them, while 100 clients send requests. Sash asks
// Envoy, which keeps its HTTP/2 connections, for new ones each second (GRPC_MAX_CONNECTION_AGE). No request fails, and each
// is charged once.
func TestRealEnvoyThroughARollingRestart(t *testing.T) {
	env := []string{"GRPC_MAX_CONNECTION_AGE=1s", "GRPC_MAX_CONNECTION_AGE_GRACE=20s"}
	flags := []string{"--redis", redistest.Start(t).Addr(), "--config", roomy(t), "--drain-delay", "5s", "--budget", patience}
	instances := []*service{spawn(t, env, flags...), spawn(t, env, flags...)}
	u := startUpstream(t)
	e := startEnvoy(t, envoyConfig(t, u, instances...))
	var sent, failed atomic.Int64
	var stop atomic.Bool
	var clients sync.WaitGroup
	for range 100 {
		clients.Go(func() {
			for !stop.Load() {
				sent.Add(1)
				if e.get(1).StatusCode != http.StatusOK {
					failed.Add(1)
				}
			}
		})
	}
	for i := range instances {
		instances[i].stopped(t)
		servertest.Wait(t, "Envoy does not miss the instance", func() bool { return e.stat("cluster.sash.membership_healthy") == 1 })
		instances[i] = spawn(t, env, append(flags, "--grpc-addr", instances[i].grpc)...)
		servertest.Wait(t, "Envoy does not find the instance again", func() bool { return e.stat("cluster.sash.membership_healthy") == 2 })
		after := sent.Load()
		servertest.Wait(t, "no requests", func() bool { return sent.Load() > after+1000 })
	}
	stop.Store(true)
	clients.Wait()
	charged(t, instances[0], u, sent.Load(), failed.Load())
	if e.stat("cluster.sash.upstream_cx_close_notify") == 0 {
		t.Error("Sash asked for no new connection")
	}
}

// configure sends Envoy the listeners and clusters of a configuration of files.
func (c *controlPlane) configure(t *testing.T, config string) {
	t.Helper()
	var tree any
	servertest.Check(t, yaml.Unmarshal([]byte(config), &tree))
	text := servertest.Must(json.Marshal(tree))(t)
	all := new(bootstrap.Bootstrap)
	servertest.Check(t, protojson.Unmarshal(text, all))
	var clusters, listeners []proto.Message
	for _, cluster := range all.StaticResources.Clusters {
		clusters = append(clusters, cluster)
	}
	for _, listener := range all.StaticResources.Listeners {
		listeners = append(listeners, listener)
	}
	c.put(t, clusters...)
	c.put(t, listeners...)
}

// One management server configures Sash and Envoy. What it changes holds without a restart, and charges stay. What it gets
// wrong is rejected with the reason, and the last good configuration stays.
func TestRealEnvoyAndSashFromAManagementServer(t *testing.T) {
	control, port := startControlPlane(t)
	limit := func(units uint32, key string) {
		control.put(t, &rls.RateLimitConfig{Name: "web", Domain: "web", Descriptors: []*rls.RateLimitDescriptor{
			{Key: key, RateLimit: &rls.RateLimitPolicy{Unit: rls.RateLimitUnit_HOUR, RequestsPerUnit: units}},
		}})
	}
	limit(3, "remote_address")
	p := serveIn(t, envoysPorts(redistest.Start(t), "CONFIG_TYPE=GRPC_XDS_SOTW",
		"CONFIG_GRPC_XDS_SERVER_URL=127.0.0.1:"+port, "CONFIG_GRPC_XDS_NODE_ID=sash-1"), "--budget", patience)
	control.configure(t, envoyConfig(t, startUpstream(t), p))
	e := startEnvoy(t, edited(t, readExample(t, "xds.yaml"), "port_value: 9901", "port_value: 0", "port_value: 18000", "port_value: "+port))
	admitted := func(client int) (n int) {
		for e.get(client).StatusCode == 200 {
			n++
		}
		return n
	}
	if n := admitted(1); n != 3 {
		t.Errorf("%d admitted, want 3", n)
	}
	limit(5, "remote_address")
	more := 0
	servertest.Wait(t, "the new limit does not hold", func() bool { more += admitted(1); return more >= 2 })
	if n := admitted(2); more != 2 || n != 5 {
		t.Errorf("%d more of an address, and %d of another, want 2 and 5", more, n)
	}
	limit(7, "")
	servertest.Wait(t, "the wrong limits are not rejected", func() bool { return len(control.reasons()) > 0 })
	if n := admitted(3); n != 5 || !strings.Contains(control.reasons()[0], "key") {
		t.Errorf("%d admitted, want 5; rejected with %q", n, control.reasons())
	}
	e.decided()
}
