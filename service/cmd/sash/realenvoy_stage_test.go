//go:build envoy

package main

import (
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"example.com/sash/service/internal/servertest"
)

// serveInline starts Sash with a configuration, and flags.
func serveInline(t *testing.T, policy string, args ...string) *service {
	t.Helper()
	file := filepath.Join(t.TempDir(), "policy.yaml")
	put(t, file, policy)
	return serve(t, append([]string{"--config", file, "--budget", patience}, args...)...)
}

// Two rate limit filters, such as before and after one that authenticates, have stages. Each makes a decision of its own: a
// request that the second refuses was charged by the first. The rate limits stand in the route, whose hits_addend Envoy
// does not send.
func TestRealEnvoyStages(t *testing.T) {
	p := serveInline(t, `
domain: web
descriptors:
  - {key: remote_address, limits: [5/1h]}
  - {key: user, limits: [2/1h]}
`)
	u := startUpstream(t)
	config := edited(t, envoyConfig(t, u, p), "route: {cluster: application}", `route: {cluster: application, rate_limits: [
  {stage: 0, actions: [{remote_address: {}}], hits_addend: {number: 3}},
  {stage: 1, actions: [{request_headers: {header_name: x-user, descriptor_key: user}}]}]}`)
	filter := "domain: web\ntimeout: 20s\nfailure_mode_deny: true\nenable_x_ratelimit_headers: DRAFT_VERSION_03\n"
	e := startEnvoy(t, withFilter(t, config, filter+"stage: 0", filter+"stage: 1"))
	for i, want := range []struct {
		user   string
		status int
	}{{"ann", 200}, {"ann", 200}, {"ann", 429}, {"", 200}, {"bob", 200}, {"bob", 429}} {
		var headers []string
		if want.user != "" {
			headers = []string{"x-user", want.user}
		}
		if res := through(e, "192.0.2.1", headers...); res.Code != want.status {
			t.Errorf("request %d of %s: %d with %v, want %d", i+1, want.user, res.Code, res.Header(), want.status)
		}
	}
	if n := e.stat("cluster.application.ratelimit.error"); n != 0 {
		t.Errorf("%d requests without a decision", n)
	}
}

// connects opens a connection from 127.0.2.client, and reports whether Envoy serves it.
func (e *realEnvoy) connects(client byte) bool {
	e.t.Helper()
	from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 2, client)}}
	conn, err := from.DialContext(e.t.Context(), "tcp", e.address)
	if err != nil {
		e.t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n") // Envoy may have closed it
	answer, _ := io.ReadAll(conn)
	return strings.HasPrefix(string(answer), "HTTP/1.1 200")
}

// Envoy's network filter limits connections: all, and those of each address. Without Sash failure_mode_deny decides.
func TestRealEnvoyLimitsConnections(t *testing.T) {
	p := serveInline(t, `
domain: connections
descriptors:
  - {key: listener, value: web, limits: [5/1h]}
  - {key: remote_address, limits: [2/1h]}
`)
	u := startUpstream(t)
	const first = "            - name: envoy.filters.network.http_connection_manager\n"
	const network = `            - name: envoy.filters.network.ratelimit
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.ratelimit.v3.RateLimit
                stat_prefix: connections
                domain: connections
                timeout: 20s
                failure_mode_deny: true
                descriptors:
                  - entries: [{key: listener, value: web}]
                  - entries: [{key: remote_address, value: "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%"}]
                rate_limit_service: {transport_api_version: V3, grpc_service: {envoy_grpc: {cluster_name: sash}}}
`
	config := edited(t, envoyConfig(t, u, p), first, network+first) // the HTTP filter's domain is unknown here
	e := startEnvoy(t, config)
	for i, want := range []struct {
		client byte
		serves bool
	}{{1, true}, {1, true}, {1, false}, {2, true}, {2, true}, {3, true}, {4, false}} {
		if got := e.connects(want.client); got != want.serves {
			t.Errorf("connection %d, of client %d: served %v, want %v", i+1, want.client, got, want.serves)
		}
	}
	if n, m := e.stat("ratelimit.connections.over_limit"), e.stat("ratelimit.connections.error"); n != 2 || m != 0 {
		t.Errorf("Envoy counted %d over the limit and %d errors", n, m)
	}
	passing := startEnvoy(t, edited(t, config, "                failure_mode_deny: true\n                descriptors", "                failure_mode_deny: false\n                descriptors",
		"failure_mode_deny: true\n                      status_on_error", "failure_mode_deny: false\n                      status_on_error"))
	if err := p.stop(t); err != nil {
		t.Error(err)
	}
	servertest.Wait(t, "the port of Sash is open", func() bool {
		_, err := http.Get("http://" + p.grpc)
		return err != nil
	})
	if e.connects(5) {
		t.Error("served without a decision")
	}
	if !passing.connects(6) {
		t.Error("failure_mode_deny: false does not serve without Sash")
	}
}
