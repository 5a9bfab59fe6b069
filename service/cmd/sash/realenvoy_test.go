//go:build envoy

package main

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"go.yaml.in/yaml/v3"

	"example.com/sash/service/internal/servertest"
)

const envoyExample = examples + "/envoy"

// An upstream is an application behind Envoy. It answers 200, with x-tokens as the request's x-use has it.
type upstream struct {
	port     string
	requests atomic.Int64
}

func startUpstream(t *testing.T) *upstream {
	t.Helper()
	u := &upstream{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u.requests.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("x-upstream", "reached")
		if used := r.Header.Get("x-use"); used != "" {
			w.Header().Set("x-tokens", used)
		}
	}))
	t.Cleanup(server.Close)
	u.port = portOf(server.Listener.Addr().String())
	return u
}

func readExample(t *testing.T, file string) string {
	t.Helper()
	return string(readFile(t, envoyExample+"/"+file))
}

// patience is the budget of a Sash that decides, however busy the machine is. Envoy waits longer.
const patience = "10s"

// serveInline starts Sash with a configuration, patience, and flags.
func serveInline(t *testing.T, policy string, args ...string) *service {
	t.Helper()
	return serve(t, append([]string{"--config", tempFile(t, "policy.yaml", policy), "--budget", patience}, args...)...)
}

// startExample starts Sash with the example's limits and rights, patience, and flags.
func startExample(t *testing.T, args ...string) *service {
	t.Helper()
	return serveInline(t, readExample(t, "policy.yaml"), append([]string{"--access", envoyExample + "/access.yaml"}, args...)...)
}

// envoyConfig returns the example's envoy.yaml with the ports of a test, and time for a busy machine. Envoy chooses its own
// ports. A service alone stands in both places.
func envoyConfig(t *testing.T, u *upstream, services ...*service) string {
	t.Helper()
	return edited(t, readExample(t, "envoy.yaml"), "port_value: 9901", "port_value: 0", "port_value: 8000", "port_value: 0",
		"timeout: 0.1s", "timeout: 20s", "port_value: 9000", "port_value: "+u.port, "port_value: 8081", "port_value: "+portOf(services[0].grpc),
		"port_value: 8082", "port_value: "+portOf(services[len(services)-1].grpc))
}

// denying begins a filter that waits, and refuses what is not decided.
const denying = "timeout: 20s\nfailure_mode_deny: true\nenable_x_ratelimit_headers: DRAFT_VERSION_03\n"

// refit returns a configuration in which f has changed the HTTP filters and, if it wants, more.
func refit(t *testing.T, config string, f func(filters []any, root map[string]any) []any) string {
	t.Helper()
	var root map[string]any
	servertest.Check(t, yaml.Unmarshal([]byte(config), &root))
	manager := at(root, "static_resources", "listeners", 0, "filter_chains", 0, "filters", 0, "typed_config").(map[string]any)
	manager["http_filters"] = f(list(manager, "http_filters"), root)
	return string(servertest.Must(yaml.Marshal(root))(t))
}

// withFilter returns the configuration with other rate limit filters. Only the address of the service stays.
func withFilter(t *testing.T, config string, filters ...string) string {
	t.Helper()
	return refit(t, config, func(before []any, _ map[string]any) (all []any) {
		for _, old := range before {
			if at(old, "name") != "envoy.filters.http.ratelimit" {
				all = append(all, old)
				continue
			}
			for _, text := range filters {
				wanted := parsed[map[string]any](t, text)
				for _, key := range []string{"@type", "rate_limit_service"} {
					wanted[key] = at(old, "typed_config", key)
				}
				all = append(all, map[string]any{"name": at(old, "name"), "typed_config": wanted})
			}
		}
		return all
	})
}

// documented returns the blocks of YAML in docs/envoy.md from a heading on.
func documented(t *testing.T, heading string) (blocks []string) {
	t.Helper()
	_, section, _ := strings.Cut(string(readFile(t, repository+"/docs/envoy.md")), heading)
	for _, block := range strings.Split(section, "```yaml\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		blocks = append(blocks, block)
	}
	return blocks
}

func parsed[T any](t *testing.T, text string) (tree T) {
	t.Helper()
	servertest.Check(t, yaml.Unmarshal([]byte(text), &tree))
	return tree
}

// A realEnvoy is a process of Envoy. It is safe for concurrent use.
type realEnvoy struct {
	t       *testing.T
	address string // of its listener web
	admin   string // a URL
	process *process
	clients [10]*http.Client
}

// startEnvoy runs Envoy until the test ends. It returns when Envoy listens and all instances of Sash are healthy.
func startEnvoy(t *testing.T, config string) *realEnvoy {
	t.Helper()
	e := launchEnvoy(t, config)
	servertest.Wait(t, "Envoy finds an instance of Sash unhealthy", func() bool {
		all := e.stat("cluster.sash.membership_total")
		return all > 0 && e.stat("cluster.sash.membership_healthy") == all
	})
	return e
}

// launchEnvoy runs Envoy until the test ends. It returns when Envoy listens.
func launchEnvoy(t *testing.T, config string) *realEnvoy {
	t.Helper()
	program := os.Getenv("ENVOY")
	if program == "" {
		t.Fatal("ENVOY does not name Envoy's binary: run make test-envoy, which gets it")
	}
	dir := t.TempDir()
	put(t, dir+"/envoy.yaml", config)
	e := &realEnvoy{t: t}
	for i := range e.clients {
		e.clients[i] = &http.Client{Transport: &http.Transport{DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 2, byte(i))}}).DialContext}}
		t.Cleanup(e.clients[i].CloseIdleConnections)
	}
	e.process = start(t, exec.Command(program, "-c", dir+"/envoy.yaml", "--admin-address-path", dir+"/admin", "--disable-hot-restart",
		"--concurrency", "2", "--log-level", "warning"))
	e.process.ready("Envoy", func() bool {
		address, err := os.ReadFile(dir + "/admin")
		if err != nil || len(address) == 0 {
			return false
		}
		e.admin = "http://" + string(address)
		res, err := http.Get(e.admin + "/ready")
		if err != nil {
			return false
		}
		_ = res.Body.Close()
		_, text := get(t, e.admin+"/listeners")
		_, web, _ := strings.Cut(text, "web::")
		e.address, _, _ = strings.Cut(web, "\n")
		return res.StatusCode == 200 && e.address != ""
	})
	return e
}

// stat returns a counter or gauge of Envoy. One that has not been counted yet is 0.
func (e *realEnvoy) stat(name string) int {
	e.t.Helper()
	_, text := get(e.t, e.admin+"/stats?filter=^"+name+"$")
	_, number, _ := strings.Cut(strings.TrimSpace(text), ": ")
	n, err := strconv.Atoi(number)
	if err != nil && text != "" {
		e.t.Fatalf("%s: %s", name, text)
	}
	return n
}

// send sends a request with a body of so many bytes from a client through Envoy. Headers are name, value, ….
func (e *realEnvoy) send(client int, method, path string, size int, headers ...string) *http.Response {
	req := servertest.Must(http.NewRequest(method, "http://"+e.address+path, bytes.NewReader(make([]byte, size))))(e.t)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := e.clients[client].Do(req)
	if err != nil {
		e.t.Errorf("Envoy does not answer: %v", err)
		return &http.Response{}
	}
	_, _ = io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
	return res
}

func (e *realEnvoy) get(client int, headers ...string) *http.Response {
	return e.send(client, http.MethodGet, "/", 0, headers...)
}

func (e *realEnvoy) post(client int, path string, size int) *http.Response {
	return e.send(client, http.MethodPost, path, size)
}

// gets sends requests, one for each status that is wanted.
func (e *realEnvoy) gets(client int, headers []string, statuses ...int) {
	e.t.Helper()
	for i, want := range statuses {
		if res := e.get(client, headers...); res.StatusCode != want {
			e.t.Errorf("request %d of client %d with %v: %d with %v, want %d", i+1, client, headers, res.StatusCode, res.Header, want)
		}
	}
}

// decided fails the test if Envoy had no decision about a request: its failure mode would hide what others show.
func (e *realEnvoy) decided() {
	e.t.Helper()
	if n := e.stat("cluster.application.ratelimit.error"); n != 0 {
		e.t.Errorf("%d requests without a decision", n)
	}
}

// peeked returns the units that are left to a subject of domain web.
func peeked(t *testing.T, p *service, key, value string) int64 {
	t.Helper()
	_, said := post(t, p.url+"/v1/peek", subject("web", key, value))
	return int64(said["remaining"].(float64))
}
