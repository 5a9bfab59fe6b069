package main

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"example.com/sash/internal/redistest"
	"example.com/sash/service/internal/servertest"
)

// A limit for each client and one for all, a stricter one for clients that are not signed in, and one of what
// responses have used.
const shop = `
domain: shop
descriptors:
  - key: remote_address
    rate_limit: {unit: minute, requests_per_unit: 4, name: per-client}
  - key: destination_cluster
    value: shop
    rate_limit: {unit: hour, requests_per_unit: 7}
  - key: header_match
    value: guest
    descriptors:
      - {key: remote_address, limits: [2/10s]}
  - {key: banned, rate_limit: {unit: second, requests_per_unit: 0}}
  - {key: tokens, count_refused: true, rate_limit: {unit: day, requests_per_unit: 100}}
`

const shopFilter = `
domain: shop
timeout: 5s
enable_x_ratelimit_headers: DRAFT_VERSION_03
enable_retry_after_header: true
rate_limits:
  - actions: [{remote_address: {}}]
  - actions: [{destination_cluster: {}}]
  - actions:
      - header_value_match: {descriptor_value: guest, expect_match: false, headers: [{name: x-user}]}
      - remote_address: {}
  - actions: [{request_headers: {header_name: x-banned, descriptor_key: banned}}]
`

func serveShop(t *testing.T) *service {
	t.Helper()
	file := tempFile(t, "shop.yaml", shop)
	return serve(t, "--config", file)
}

// Behind Envoy a client meets its own limit, that of guests, and that of all clients, and headers show each.
func TestEnvoyLimitsEachClientAndAllTogether(t *testing.T) {
	limitsEachClientAndAllTogether(t, serveShop(t).envoy(t, shopFilter))
}

func limitsEachClientAndAllTogether(t *testing.T, e http.Handler) {
	t.Helper()
	if res := through(e, "192.0.2.9", "x-user", "zoe", "x-banned", "yes"); res.Code != 429 {
		t.Errorf("a banned client, which charges no limit: %d", res.Code)
	}
	const policies = `, 4;w=60;name="per-client", 7;w=3600`
	for i, tt := range []struct {
		what, address, user string
		status              int
		limit, remaining    string
	}{
		{"a guest", "192.0.2.1", "", 200, "2" + policies + ", 2;w=10", "1"},
		{"a guest again", "192.0.2.1", "", 200, "2" + policies + ", 2;w=10", "0"},
		{"a guest too often", "192.0.2.1", "", 429, "2" + policies + ", 2;w=10", "0"},
		{"signed in", "192.0.2.1", "ann", 200, "4" + policies, "1"}, // the refusal charged nothing
		{"twice", "192.0.2.1", "ann", 200, "4" + policies, "0"},
		{"and too often", "192.0.2.1", "ann", 429, "4" + policies, "0"},
		{"another client", "192.0.2.2", "bob", 200, "7" + policies, "2"},
		{"again", "192.0.2.2", "bob", 200, "7" + policies, "1"},
		{"a third", "192.0.2.3", "eve", 200, "7" + policies, "0"},
		{"all together", "192.0.2.4", "joe", 429, "7" + policies, "0"},
	} {
		headers := []string{"x-user", tt.user}
		if tt.user == "" {
			headers = nil
		}
		res := through(e, tt.address, headers...)
		reached, limited := res.Header().Get("x-upstream") != "", res.Header().Get("x-envoy-ratelimited") == "true"
		if res.Code != tt.status || reached != (tt.status == 200) || limited != (tt.status == 429) {
			t.Errorf("%d, %s: %d, upstream reached: %v, %v; want %d", i+1, tt.what, res.Code, reached, res.Header(), tt.status)
		}
		if got := res.Header().Get("x-ratelimit-limit"); got != tt.limit || res.Header().Get("x-ratelimit-remaining") != tt.remaining || res.Header().Get("x-ratelimit-reset") == "" {
			t.Errorf("%d, %s: %v; want %q with %s left", i+1, tt.what, res.Header(), tt.limit, tt.remaining)
		}
		if limited != (res.Header().Get("Retry-After") != "") {
			t.Errorf("%d, %s: Retry-After %q", i+1, tt.what, res.Header().Get("Retry-After"))
		}
	}
}

// Envoy charges what a response has used when it is done, and the next request meets the charge.
func TestEnvoyChargesWhatResponsesUsed(t *testing.T) {
	chargesWhatResponsesUsed(t, serveShop(t).envoy(t, doneFilter), func(int) {})
}

const doneFilter = `
domain: shop
timeout: 5s
rate_limits:
  - {actions: [{request_headers: {header_name: x-user, descriptor_key: tokens}}], hits_addend: {number: 0}}
  - {actions: [{request_headers: {header_name: x-user, descriptor_key: tokens}}], hits_addend: {number: 50}, apply_on_stream_done: true}
`

// chargesWhatResponsesUsed calls charged when a request is done. It returns when the requests so far are charged.
func chargesWhatResponsesUsed(t *testing.T, e http.Handler, charged func(requests int)) {
	t.Helper()
	for i, want := range []int{200, 200, 200, 429, 429} { // 50, 100, which is not over, 150
		if res := through(e, "192.0.2.1", "x-user", "ann"); res.Code != want {
			t.Errorf("request %d: %d, want %d", i+1, res.Code, want)
		}
		charged(i + 1)
	}
	if res := through(e, "192.0.2.1", "x-user", "bob"); res.Code != 200 {
		t.Errorf("another user: %d", res.Code)
	}
}

// Without Sash, Envoy does what its own configuration says.
func TestEnvoyWithoutSash(t *testing.T) {
	p := serveShop(t)
	passing, closed := p.envoy(t, shopFilter), p.envoy(t, shopFilter+"failure_mode_deny: true\nstatus_on_error: {code: 503}\n")
	for _, e := range []http.Handler{passing, closed} {
		if res := through(e, "192.0.2.1", "x-user", "ann"); res.Code != 200 {
			t.Fatalf("with Sash: %d", res.Code)
		}
	}
	if err := p.stop(t); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if res := through(passing, "192.0.2.1"); res.Code != 200 || res.Header().Get("x-upstream") == "" {
			t.Errorf("failure mode allow: %d", res.Code)
		}
		if res := through(closed, "192.0.2.1"); res.Code != 503 || res.Header().Get("x-upstream") != "" {
			t.Errorf("failure mode deny: %d", res.Code)
		}
	}
	if a, b := passing.Unanswered.Load(), closed.Unanswered.Load(); a != 3 || b != 3 {
		t.Errorf("%d and %d unanswered", a, b)
	}
}

// A closed rule gives Envoy no answer while Redis is away: Envoy's failure mode decides.
func TestEnvoyWhereRedisIsAwayAndTheRuleIsClosed(t *testing.T) {
	server := redistest.Start(t)
	server.Stop()
	p := servePolicies(t, "--redis", server.Addr())
	const filter = `
domain: d
timeout: 5s
rate_limits: [{actions: [{request_headers: {header_name: x-rule, descriptor_key: KEY}}]}]
`
	for key, want := range map[string]int{"closed": 500, "open": 200} {
		config := strings.ReplaceAll(filter, "KEY", key)
		servertest.Wait(t, key, func() bool {
			return through(p.envoy(t, config+"failure_mode_deny: true\n"), "192.0.2.1", "x-rule", "a").Code == want
		})
		if res := through(p.envoy(t, config), "192.0.2.1", "x-rule", "a"); res.Code != 200 {
			t.Errorf("%s, failure mode allow: %d", key, res.Code)
		}
	}
}

// The file of rights and the filter in the documentation are valid, and the filter works with the built-in example.
func TestTheDocumentedFilterOfEnvoy(t *testing.T) {
	text := readFile(t, "../../../docs/envoy.md")
	var blocks []string
	for _, block := range strings.Split(string(text), "```yaml\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		blocks = append(blocks, block)
	}
	rights, block := filepath.Join(t.TempDir(), "access.yaml"), blocks[1]
	put(t, rights, strings.ReplaceAll(blocks[0], "edge", "demo"))
	res := through(serve(t, "--access", rights).envoy(t, strings.Replace(block, "0.1s", "5s", 1)), "192.0.2.1")
	if res.Code != 200 || res.Header().Get("x-ratelimit-limit") == "" {
		t.Errorf("%d with %v", res.Code, res.Header())
	}
}
