//go:build envoy

package main

import (
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"example.com/sash/internal/redistest"
	"example.com/sash/service/internal/servertest"
)

// startExample starts Sash with the example's limits and rights, patience, and flags.
func startExample(t *testing.T, args ...string) *service {
	t.Helper()
	return serve(t, append([]string{"--config", envoyExample + "/policy.yaml", "--access", envoyExample + "/access.yaml", "--budget", patience}, args...)...)
}

const shadowed = `ratelimit_service_rate_limit_shadow_mode{domain="web",key1="header_match_search",key2="remote_address"} `

// counted returns a counter of the service's metrics, or 0.
func (p *service) counted(t *testing.T, series string) int {
	t.Helper()
	_, text := get(t, p.admin+"/metrics")
	_, after, found := strings.Cut(text, "\n"+series)
	if !found {
		return 0
	}
	number, _, _ := strings.Cut(after, "\n")
	n, err := strconv.Atoi(number)
	if err != nil {
		t.Fatalf("%s%s: %v", series, number, err)
	}
	return n
}

// A seen is what a client sees of a limit.
type seen struct {
	status           int
	limit, remaining string // the fields of draft 03
}

func see(res *httptest.ResponseRecorder) seen {
	return seen{res.Code, res.Header().Get("X-Ratelimit-Limit"), res.Header().Get("X-Ratelimit-Remaining")}
}

// The example's limits, each from its own client, through Envoy and two instances that share a Redis.
func TestRealEnvoyLimits(t *testing.T) {
	redis := redistest.Start(t)
	a, b := startExample(t, "--redis", redis.Addr()), startExample(t, "--redis", redis.Addr())
	u := startUpstream(t)
	e := startEnvoy(t, envoyConfig(t, u, a, b))
	check := func(t *testing.T, what string, res *httptest.ResponseRecorder, want seen) http.Header {
		t.Helper()
		if got := see(res); got != want {
			t.Errorf("%s: %+v, want %+v", what, got, want)
		}
		h := res.Header()
		refused := want.status == 429
		if (h.Get("X-Envoy-Ratelimited") == "true") != refused || (h.Get("X-Upstream") == "") != refused ||
			(h.Get("Retry-After") != "") != refused || (h.Get("X-Ratelimit-Reset") == "") != (want.limit == "") {
			t.Errorf("%s: %v", what, h)
		}
		return h
	}
	const client = ", 5;w=10"

	t.Run("headers", func(t *testing.T) {
		for left := 4; left >= 0; left-- {
			check(t, "admitted", through(e, "192.0.2.1"), seen{200, "5" + client, strconv.Itoa(left)})
		}
		h := check(t, "refused", through(e, "192.0.2.1"), seen{429, "5" + client, "0"})
		reset, err := strconv.Atoi(h.Get("X-Ratelimit-Reset"))
		retry, err2 := strconv.Atoi(h.Get("Retry-After"))
		if err != nil || err2 != nil || reset < 1 || reset > 10 || retry != reset {
			t.Errorf("%v, want a retry in ten seconds at most", h)
		}
	})
	t.Run("descriptors", func(t *testing.T) { // one decision: the refusal charges no limit of the request
		login := func() *httptest.ResponseRecorder { return e.post(2, "/login", 0) }
		const limits = client + ", 3;w=10"
		for left := 2; left >= 0; left-- {
			check(t, "login", login(), seen{200, "3" + limits, strconv.Itoa(left)})
		}
		check(t, "login", login(), seen{429, "3" + limits, "0"})
		check(t, "elsewhere", through(e, "192.0.2.2"), seen{200, "5" + client, "1"})
	})
	t.Run("hits_addend", func(t *testing.T) {
		const limits = client + ", 1000000;w=3600"
		check(t, "upload", e.post(3, "/upload", 999_998), seen{200, "1000000" + limits, "2"})
		check(t, "too large", e.post(3, "/upload", 3), seen{429, "1000000" + limits, "2"})
		check(t, "upload", e.post(3, "/upload", 2), seen{200, "1000000" + limits, "0"})
	})
	t.Run("override", func(t *testing.T) { // each customer from an address of its own
		for customer, units := range map[string]int{"ann": 4, "bob": 2} {
			address := map[string]string{"ann": "192.0.2.4", "bob": "192.0.2.5"}[customer]
			n := strconv.Itoa(units)
			for left := units - 1; left >= 0; left-- {
				check(t, customer, through(e, address, "x-customer", customer), seen{200, n + client + ", " + n + ";w=3600", strconv.Itoa(left)})
			}
			check(t, customer, through(e, address, "x-customer", customer), seen{429, n + client + ", " + n + ";w=3600", "0"})
		}
	})
	t.Run("shadow", func(t *testing.T) { // admitted beyond 2/1h, which no field shows
		for range 4 {
			check(t, "search", e.post(6, "/search", 0), seen{200, "", ""})
		}
		check(t, "search", e.post(6, "/search", 0), seen{200, "5" + client, "0"})
		check(t, "search", e.post(6, "/search", 0), seen{429, "5" + client, "0"})
		if n := a.counted(t, shadowed) + b.counted(t, shadowed); n != 4 { // also the one that the other limit refused
			t.Errorf("%d requests over the limit that is tried, want 4", n)
		}
	})
	t.Run("tokens", func(t *testing.T) {
		ask := func() int { return through(e, "192.0.2.7", "x-user", "ann", "x-use", "600").Code }
		for range 2 { // 600 and 1,200 of 1,000; the charge comes after the response
			if status := ask(); status != 200 {
				t.Errorf("with tokens left: %d", status)
			}
		}
		servertest.Wait(t, "a user who is over the limit is admitted", func() bool {
			return through(e, "192.0.2.8", "x-user", "ann").Code == 429
		})
	})
	// Nothing was decided by Envoy's failure mode, which would have hidden what the tests above show.
	if n := e.stat("cluster.application.ratelimit.error"); n != 0 {
		t.Errorf("%d requests without a decision", n)
	}
}

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

const doneFilter = `
domain: shop
timeout: 5s
rate_limits:
  - {actions: [{request_headers: {header_name: x-user, descriptor_key: tokens}}], hits_addend: {number: 0}}
  - {actions: [{request_headers: {header_name: x-user, descriptor_key: tokens}}], hits_addend: {number: 50}, apply_on_stream_done: true}
`

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

// Limits of each client and of all, of guests, and of what responses have used.
func TestRealEnvoyLimitsEachClientAndAllTogether(t *testing.T) {
	u := startUpstream(t)
	start := func(t *testing.T, p *service, filter string) http.Handler {
		return startEnvoy(t, edited(t, withFilter(t, envoyConfig(t, u, p), filter), "application", "shop"))
	}
	t.Run("limits", func(t *testing.T) { limitsEachClientAndAllTogether(t, start(t, serveInline(t, shop), shopFilter)) })
	t.Run("stream done", func(t *testing.T) { // a client has the response before Envoy charges it
		p := serveInline(t, shop)
		e := start(t, p, doneFilter)
		for i, want := range []int{200, 200, 200, 429, 429} { // 50, 100, which is not over, 150
			if res := through(e, "192.0.2.1", "x-user", "ann"); res.Code != want {
				t.Errorf("request %d: %d, want %d", i+1, res.Code, want)
			}
			servertest.Wait(t, "the response is not charged", func() bool {
				return p.counted(t, `ratelimit_service_rate_limit_total_hits{domain="shop",key1="tokens"} `) == 50*(i+1)
			})
		}
		if res := through(e, "192.0.2.1", "x-user", "bob"); res.Code != 200 {
			t.Errorf("another user: %d", res.Code)
		}
	})
}

// The file of rights and the filter in the documentation are valid, and the filter works with the built-in example.
func TestRealEnvoyTakesTheDocumentedFilter(t *testing.T) {
	text := readFile(t, "../../../docs/envoy.md")
	var blocks []string
	for _, block := range strings.Split(string(text), "```yaml\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		blocks = append(blocks, block)
	}
	p := serve(t, "--access", tempFile(t, "access.yaml", strings.ReplaceAll(blocks[0], "edge", "demo")))
	e := startEnvoy(t, withFilter(t, envoyConfig(t, startUpstream(t), p), strings.Replace(blocks[1], "0.1s", "5s", 1)))
	if res := through(e, "192.0.2.1"); res.Code != 200 || res.Header().Get("x-ratelimit-limit") == "" {
		t.Errorf("%d with %v", res.Code, res.Header())
	}
}

// make run-envoy and the requests of the example's README.md, in a network of their own, where the example's ports are
// free.
func TestRealEnvoyRunsTheExample(t *testing.T) {
	_, rest, _ := strings.Cut(readExample(t, "README.md"), "for i in")
	loop, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatal("README.md has no loop")
	}
	cmd := exec.CommandContext(t.Context(), "timeout", "60", "unshare", "--net", "--map-root-user", "bash", "-ec", `
ip link set lo up
make -s run-envoy &
trap 'kill $!; wait' EXIT
until curl -sf http://127.0.0.1:9901/stats | grep -qx 'cluster.sash.membership_healthy: 2'; do sleep 0.1; done
for i in`+loop)
	cmd.Dir = repository
	out, err := cmd.CombinedOutput()
	if passed, refused := strings.Count(string(out), "HTTP/1.1 200"), strings.Count(string(out), "HTTP/1.1 429"); err != nil || passed != 5 || refused != 1 {
		t.Errorf("%v: %s", err, out)
	}
}
