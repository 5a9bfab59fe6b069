//go:build envoy

package main

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"testing"

	"example.com/sash/service/internal/servertest"
)

// Envoy has rights by a token in the initial_metadata of its service, with both of its gRPC clients. Without the token it
// has no decisions.
func TestRealEnvoyWithAToken(t *testing.T) {
	const token = "0123456789abcdef0123456789abcdef"
	sum := sha256.Sum256([]byte(token))
	rights := filepath.Join(t.TempDir(), "access.yaml")
	put(t, rights, "clients: [{name: edge, tokens: ["+hex.EncodeToString(sum[:])+"], allow: [decide, override], domains: [web]}]\n")
	p := serve(t, "--config", envoyExample+"/policy.yaml", "--access", rights, "--budget", patience)
	u := startUpstream(t)
	const client = "grpc_service: {envoy_grpc: {cluster_name: sash}}"
	for name, service := range map[string]string{
		"Envoy's client":  "envoy_grpc: {cluster_name: sash}",
		"Google's client": "google_grpc: {target_uri: " + p.grpc + ", stat_prefix: sash}",
	} {
		for value, want := range map[string]int{"Bearer " + token: 200, "Bearer x" + token: 503} {
			e := startEnvoy(t, edited(t, envoyConfig(t, u, p), client,
				"grpc_service: {"+service+`, initial_metadata: [{key: authorization, value: "`+value+`"}]}`))
			address := map[string]string{"Envoy's client": "192.0.2.1", "Google's client": "192.0.2.2"}[name]
			if res := through(e, address, "x-customer", "ann"); res.Code != want {
				t.Errorf("%s with %s: %d, want %d", name, value, res.Code, want)
			}
		}
	}
	e := startEnvoy(t, envoyConfig(t, u, p))
	if res := through(e, "192.0.2.3"); res.Code != 503 {
		t.Errorf("without a token: %d", res.Code)
	}
}

// Without the right to override, a request with a limit of its own has no decision, and others have.
func TestRealEnvoyWithoutTheRightToOverride(t *testing.T) {
	p := serve(t, "--config", envoyExample+"/policy.yaml", "--budget", patience)
	u := startUpstream(t)
	e := startEnvoy(t, envoyConfig(t, u, p))
	if res := through(e, "192.0.2.1", "x-customer", "ann"); res.Code != 503 || u.requests.Load() != 0 {
		t.Errorf("with a limit: %d", res.Code)
	}
	if res := through(e, "192.0.2.1", "x-customer", "bob"); res.Code != 200 {
		t.Errorf("without one: %d", res.Code)
	}
}

// What a request charged is given back when its response is done, with is_negative_hits: a limit of requests in flight. A
// limit in the configuration of Envoy is a request limit too.
func TestRealEnvoyGivesBack(t *testing.T) {
	p := serveInline(t, `
domain: web
descriptors:
  - {key: flight, limits: [2/1h]}
  - {key: free, rate_limit: {unlimited: true}}
`, "--access", rightsOf(t, "[decide, refund, override]"))
	u := startUpstream(t)
	e := startEnvoy(t, withFilter(t, envoyConfig(t, u, p), `
domain: web
timeout: 20s
failure_mode_deny: true
enable_x_ratelimit_headers: DRAFT_VERSION_03
rate_limits:
  - actions: [{request_headers: {header_name: x-flight, descriptor_key: flight}}]
  - actions: [{request_headers: {header_name: x-flight, descriptor_key: flight}}]
    hits_addend: {number: 1, is_negative_hits: true}
    apply_on_stream_done: true
  - actions: [{request_headers: {header_name: x-fixed, descriptor_key: fixed}}]
    limit: {rate_limit: {requests_per_unit: 1, unit: DAY}}
  - actions: [{request_headers: {header_name: x-free, descriptor_key: free}}]
`))
	for i := range 6 {
		res := through(e, "192.0.2.1", "x-flight", "a")
		if got, want := see(res), (seen{200, "2, 2;w=3600", "1"}); got != want {
			t.Errorf("request %d: %+v, want %+v", i+1, got, want)
		}
		servertest.Wait(t, "nothing is given back", func() bool {
			return peeked(t, p, "flight", "a") == 2
		})
	}
	for _, want := range []int{200, 429} {
		if got := see(through(e, "192.0.2.1", "x-fixed", "a")); got.status != want || got.limit != "1, 1;w=86400" {
			t.Errorf("a limit of Envoy's configuration: %+v, want %d", got, want)
		}
	}
	if got, want := see(through(e, "192.0.2.1", "x-free", "a")), (seen{status: 200}); got != want {
		t.Errorf("unlimited: %+v, want no fields", got)
	}
}

// rightsOf writes a file that gives rights to everyone.
func rightsOf(t *testing.T, rights string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "access.yaml")
	put(t, file, "anonymous: {allow: "+rights+"}\n")
	return file
}
