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

// What the other tests show with the stand-in holds for Envoy itself.
func TestRealEnvoyDoesWhatItsStandInDoes(t *testing.T) {
	u := startUpstream(t)
	start := func(t *testing.T, p *service, filter string) http.Handler {
		return startEnvoy(t, edited(t, withFilter(t, envoyConfig(t, u, p), filter), "application", "shop"))
	}
	t.Run("limits", func(t *testing.T) { limitsEachClientAndAllTogether(t, start(t, serveShop(t), shopFilter)) })
	t.Run("stream done", func(t *testing.T) { // a client has the response before Envoy charges it
		p := serveShop(t)
		chargesWhatResponsesUsed(t, start(t, p, doneFilter), func(requests int) {
			servertest.Wait(t, "the response is not charged", func() bool {
				return p.counted(t, `ratelimit_service_rate_limit_total_hits{domain="shop",key1="tokens"} `) == 50*requests
			})
		})
	})
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
