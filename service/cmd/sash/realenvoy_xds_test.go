//go:build envoy

package main

import (
	"encoding/json"
	"strings"
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

// configure sends Envoy the listeners and clusters of a configuration of files.
func (c *controlPlane) configure(t *testing.T, config string) {
	t.Helper()
	var tree any
	if err := yaml.Unmarshal([]byte(config), &tree); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	all := new(bootstrap.Bootstrap)
	if err := protojson.Unmarshal(text, all); err != nil {
		t.Fatal(err)
	}
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

// limit sends Sash a limit for each address, and one for none.
func (c *controlPlane) limit(t *testing.T, units uint32, key string) {
	t.Helper()
	c.put(t, &rls.RateLimitConfig{Name: "web", Domain: "web", Descriptors: []*rls.RateLimitDescriptor{
		{Key: key, RateLimit: &rls.RateLimitPolicy{Unit: rls.RateLimitUnit_HOUR, RequestsPerUnit: units}},
		{Key: "closed", RateLimit: &rls.RateLimitPolicy{Unit: rls.RateLimitUnit_HOUR, RequestsPerUnit: 0}},
	}})
}

// One management server configures Sash and Envoy. What it changes holds without a restart, and charges stay. What it gets
// wrong is rejected with the reason, and the last good configuration stays.
func TestRealEnvoyAndSashFromAManagementServer(t *testing.T) {
	control, port := startControlPlane(t)
	control.limit(t, 3, "remote_address")
	redis := redistest.Start(t)
	p := serveIn(t, []string{
		"CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL=127.0.0.1:" + port, "CONFIG_GRPC_XDS_NODE_ID=sash-1",
		"HOST=127.0.0.1", "PORT=0", "GRPC_HOST=127.0.0.1", "GRPC_PORT=0", "DEBUG_HOST=127.0.0.1", "DEBUG_PORT=0",
		"REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + redis.Addr(),
	}, "--budget", patience)
	u := startUpstream(t)
	config := envoyConfig(t, u, p)
	control.configure(t, config)
	e := startEnvoy(t, edited(t, readExample(t, "xds.yaml"), "port_value: 9901", "port_value: 0", "port_value: 18000", "port_value: "+port))
	admitted := func(address string) (n int) {
		for through(e, address).Code == 200 {
			n++
		}
		return n
	}
	if n := admitted("192.0.2.1"); n != 3 {
		t.Errorf("%d admitted, want 3", n)
	}

	control.limit(t, 5, "remote_address")
	more := 0
	servertest.Wait(t, "the new limit does not hold", func() bool { more += admitted("192.0.2.1"); return more >= 2 })
	if n := admitted("192.0.2.2"); more != 2 || n != 5 {
		t.Errorf("%d more of an address, and %d of another, want 2 and 5", more, n)
	}

	control.limit(t, 7, "")
	servertest.Wait(t, "the wrong limits are not rejected", func() bool { return len(control.reasons()) > 0 })
	if n := admitted("192.0.2.3"); n != 5 || !strings.Contains(control.reasons()[0], "key") {
		t.Errorf("%d admitted, want 5; rejected with %q", n, control.reasons())
	}

	control.configure(t, withFilter(t, config, `
domain: web
timeout: 20s
failure_mode_deny: true
rate_limits: [{actions: [{generic_key: {descriptor_key: closed, descriptor_value: all}}]}]
`))
	servertest.Wait(t, "Envoy has not taken the new descriptors", func() bool { return through(e, "192.0.2.4").Code == 429 })
	if n := e.stat("cluster.application.ratelimit.error"); n != 0 {
		t.Errorf("%d requests without a decision", n)
	}
}
