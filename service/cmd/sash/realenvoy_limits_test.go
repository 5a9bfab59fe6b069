//go:build envoy

package main

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"example.com/sash/internal/redistest"
	"example.com/sash/service/internal/servertest"
)

type seen struct {
	status           int
	limit, remaining string // the fields of draft 03
}

func see(res *http.Response) seen {
	return seen{res.StatusCode, res.Header.Get("X-Ratelimit-Limit"), res.Header.Get("X-Ratelimit-Remaining")}
}

// The example's limits, each from its own client, through Envoy and two instances that share a Redis.
func TestRealEnvoyLimits(t *testing.T) {
	redis := redistest.Start(t)
	a, b := startExample(t, "--redis", redis.Addr()), startExample(t, "--redis", redis.Addr())
	e := startEnvoy(t, envoyConfig(t, startUpstream(t), a, b))
	check := func(what string, res *http.Response, want seen) {
		t.Helper()
		h, refused := res.Header, want.status == 429
		if see(res) != want || (h.Get("X-Envoy-Ratelimited") == "true") != refused || (h.Get("X-Upstream") == "") != refused ||
			(h.Get("Retry-After") != "") != refused || (h.Get("X-Ratelimit-Reset") == "") != (want.limit == "") {
			t.Errorf("%s: %+v, want %+v: %v", what, see(res), want, h)
		}
	}
	const client = ", 5;w=10"
	for left := 4; left >= 0; left-- {
		check("admitted", e.get(1), seen{200, "5" + client, strconv.Itoa(left)})
	}
	refused := e.get(1)
	check("refused", refused, seen{429, "5" + client, "0"})
	reset, err := strconv.Atoi(refused.Header.Get("X-Ratelimit-Reset"))
	if retry := refused.Header.Get("Retry-After"); err != nil || reset < 1 || reset > 10 || retry != strconv.Itoa(reset) {
		t.Errorf("%v, want a retry in ten seconds at most", refused.Header)
	}

	// Several descriptors are one decision: the refusal charges no limit of the request.
	const login = client + ", 3;w=10"
	for left := 2; left >= 0; left-- {
		check("login", e.post(2, "/login", 0), seen{200, "3" + login, strconv.Itoa(left)})
	}
	check("login", e.post(2, "/login", 0), seen{429, "3" + login, "0"})
	check("elsewhere", e.get(2), seen{200, "5" + client, "1"})

	const bytes = "1000000" + client + ", 1000000;w=3600" // hits_addend
	check("upload", e.post(3, "/upload", 999_998), seen{200, bytes, "2"})
	check("too large", e.post(3, "/upload", 3), seen{429, bytes, "2"})
	check("upload", e.post(3, "/upload", 2), seen{200, bytes, "0"})

	for i, units := range []int{4, 2} { // the request limit of ann's plan, and the rule's for bob
		customer := []string{"x-customer", []string{"ann", "bob"}[i]}
		limit := fmt.Sprintf("%d%s, %[1]d;w=3600", units, client)
		for left := units - 1; left >= 0; left-- {
			check(customer[1], e.get(4+i, customer...), seen{200, limit, strconv.Itoa(left)})
		}
		check(customer[1], e.get(4+i, customer...), seen{429, limit, "0"})
	}

	for range 4 { // admitted beyond 2/1h, which is tried, and which no field shows
		check("search", e.post(6, "/search", 0), seen{200, "", ""})
	}
	check("search", e.post(6, "/search", 0), seen{200, "5" + client, "0"})

	e.gets(7, []string{"x-user", "ann", "x-use", "600"}, 200, 200) // 600 and 1,200 of 1,000 tokens; the charge comes after the response
	servertest.Wait(t, "a user who is over the limit is admitted", func() bool { return e.get(8, "x-user", "ann").StatusCode == 429 })
	e.decided()
}

// The file of rights and the filter in the documentation are valid, and the filter works with the built-in example. So does
// the filter that Istio inserts with the ConfigMap of examples/kubernetes, under the name that Istio gives the cluster.
func TestRealEnvoyTakesTheDocumentedFilters(t *testing.T) {
	blocks := documented(t, "\n### Rights\n") // the filter is the next
	p := serve(t, "--access", tempFile(t, "access.yaml", edited(t, blocks[0], "edge", "demo")))
	e := startEnvoy(t, withFilter(t, envoyConfig(t, startUpstream(t), p), edited(t, blocks[1], "0.1s", "5s")))
	if res := e.get(1); res.StatusCode != 200 || res.Header.Get("x-ratelimit-limit") == "" {
		t.Errorf("%d with %v", res.StatusCode, res.Header)
	}

	text := at(manifests(t)["ConfigMap"], "data", "shop.yaml").(string) // the limits of an address do not end within the test
	e = startEnvoy(t, withFilter(t, envoyConfig(t, startUpstream(t), serveInline(t, edited(t, text, "5/2s", "5/1h", "1000/1m", "3/1h"))), istioFilter(t)))
	e.gets(1, nil, 200, 200, 200, 200, 200, 429)
	for i, want := range []int{200, 200, 200, 429} { // of clients of their own
		if got := e.send(2+i, "GET", "/search?q=a", 0).StatusCode; got != want {
			t.Errorf("/search %d: %d, want %d", i+1, got, want)
		}
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

// Envoy has rights by a token in the initial_metadata of its service. With another token it has no decisions.
func TestRealEnvoyWithAToken(t *testing.T) {
	rights := fmt.Sprintf("clients: [{name: edge, tokens: [%x], allow: [decide, override], domains: [web]}]\n", sha256.Sum256([]byte(adminToken)))
	p := serveInline(t, readExample(t, "policy.yaml"), "--access", tempFile(t, "access.yaml", rights))
	config := envoyConfig(t, startUpstream(t), p)
	for token, want := range map[string]int{adminToken: 200, "x" + adminToken: 503} {
		const cluster = "envoy_grpc: {cluster_name: sash}"
		e := startEnvoy(t, edited(t, config, "grpc_service: {"+cluster+"}",
			"grpc_service: {"+cluster+`, initial_metadata: [{key: authorization, value: "Bearer `+token+`"}]}`))
		e.gets(1, []string{"x-customer", "ann"}, want)
	}
}

// What a request charged is given back when its response is done, with is_negative_hits: a limit of requests in flight. A
// limit in the configuration of Envoy is a request limit too.
func TestRealEnvoyGivesBack(t *testing.T) {
	p := serveInline(t, "domain: web\ndescriptors:\n  - {key: flight, limits: [2/1h], refund_within: 1m}\n  - {key: free, rate_limit: {unlimited: true}}\n",
		"--access", tempFile(t, "access.yaml", "anonymous: {allow: [decide, refund, override]}\n"))
	e := startEnvoy(t, withFilter(t, envoyConfig(t, startUpstream(t), p), denying+`
domain: web
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
		if got, want := see(e.get(1, "x-flight", "a")), (seen{200, "2, 2;w=3600", "1"}); got != want {
			t.Errorf("request %d: %+v, want %+v", i+1, got, want)
		}
		servertest.Wait(t, "nothing is given back", func() bool { return peeked(t, p, "flight", "a") == 2 })
	}
	for _, want := range []int{200, 429} {
		if got := see(e.get(1, "x-fixed", "a")); got.status != want || got.limit != "1, 1;w=86400" {
			t.Errorf("a limit of Envoy's configuration: %+v, want %d", got, want)
		}
	}
	if got, want := see(e.get(1, "x-free", "a")), (seen{status: 200}); got != want {
		t.Errorf("unlimited: %+v, want no fields", got)
	}
}

// Envoy and Sash identify each other by certificates, as mtls.yaml has it: Envoy has its rights by its name, and neither
// talks to a stranger. Without the right to override, a request with a limit of its own has no decision, and others have.
func TestRealEnvoyWithCertificates(t *testing.T) {
	ca, strangers := certify(t, "sash.internal", "envoy.internal", "reader.internal"), certify(t, "envoy.internal")
	rights := tempFile(t, "access.yaml", `
clients:
  - {name: envoy, certificates: [envoy.internal], allow: [decide, override], domains: [web]}
  - {name: reader, certificates: [reader.internal], allow: [decide], domains: [web]}
`)
	p := serveInline(t, readExample(t, "policy.yaml"), "--access", rights,
		"--tls-cert", ca.file("sash.internal.pem"), "--tls-key", ca.file("sash.internal.key"), "--tls-client-ca", ca.file("authority.pem"))
	u := startUpstream(t)
	config := func(p *service, pairs ...string) string {
		return envoyConfig(t, u, p) + edited(t, edited(t, readExample(t, "mtls.yaml"), pairs...), "/etc/envoy/tls", ca.dir)
	}
	customer := []string{"x-customer", "ann"} // the plan of this customer, which only Envoy may set
	startEnvoy(t, config(p)).gets(1, customer, 200, 200, 200, 200, 429)
	reader := startEnvoy(t, config(p, "envoy.internal", "reader.internal"))
	reader.gets(2, nil, 200)
	reader.gets(2, customer, 503)

	before := u.requests.Load()
	for name, wrong := range map[string]string{
		"another authority's":     edited(t, config(p), ca.file("envoy.internal"), strangers.file("envoy.internal")),
		"Sash's authority is not": edited(t, config(p), ca.file("authority.pem"), strangers.file("authority.pem")),
		"no TLS":                  envoyConfig(t, u, p),
	} {
		e := launchEnvoy(t, wrong)
		e.gets(3, nil, 503)
		servertest.Wait(t, name+": Envoy finds Sash healthy", func() bool {
			return e.stat("cluster.sash.health_check.failure") > 0 && e.stat("cluster.sash.membership_healthy") == 0
		})
	}
	if n := u.requests.Load() - before; n != 0 {
		t.Errorf("%d requests without a decision reached the application", n)
	}
}
