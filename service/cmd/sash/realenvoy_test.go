//go:build envoy

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

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
	u.port = portOf(t, server.Listener.Addr().String())
	return u
}

func readExample(t *testing.T, file string) string {
	t.Helper()
	text := readFile(t, filepath.Join(envoyExample, file))
	return string(text)
}

// patience is the budget of a Sash that decides, however busy the machine is. Envoy waits longer.
const patience = "10s"

// envoyConfig returns the example's envoy.yaml with the ports of a test, and time for a busy machine. Envoy chooses its own
// ports. A service alone stands in both places.
func envoyConfig(t *testing.T, u *upstream, services ...*service) string {
	t.Helper()
	return edited(t, readExample(t, "envoy.yaml"), "port_value: 9901", "port_value: 0", "port_value: 8000", "port_value: 0",
		"timeout: 0.1s", "timeout: 20s", "port_value: 9000", "port_value: "+u.port, "port_value: 8081", "port_value: "+portOf(t, services[0].grpc),
		"port_value: 8082", "port_value: "+portOf(t, services[len(services)-1].grpc))
}

// withFilter returns the configuration with other rate limit filters. Only the address of the service stays.
func withFilter(t *testing.T, config string, filters ...string) string {
	t.Helper()
	var root map[string]any
	if err := yaml.Unmarshal([]byte(config), &root); err != nil {
		t.Fatal(err)
	}
	first := func(of any, key string) map[string]any { return of.(map[string]any)[key].([]any)[0].(map[string]any) }
	manager := first(first(first(root["static_resources"], "listeners"), "filter_chains"), "filters")["typed_config"].(map[string]any)
	var all []any
	for _, f := range manager["http_filters"].([]any) {
		old := f.(map[string]any)
		if old["name"] != "envoy.filters.http.ratelimit" {
			all = append(all, f)
			continue
		}
		for _, text := range filters {
			var wanted map[string]any
			if err := yaml.Unmarshal([]byte(text), &wanted); err != nil {
				t.Fatal(err)
			}
			for _, key := range []string{"@type", "rate_limit_service"} {
				wanted[key] = old["typed_config"].(map[string]any)[key]
			}
			all = append(all, map[string]any{"name": old["name"], "typed_config": wanted})
		}
	}
	manager["http_filters"] = all
	text, err := yaml.Marshal(root)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A realEnvoy is a process of Envoy. As a handler it passes requests to that process, from the address 127.0.2.N for
// 192.0.2.N. It is safe for concurrent use.
type realEnvoy struct {
	t          *testing.T
	address    string // of its listener web
	admin      string // a URL
	log        *servertest.Log
	transports map[string]*http.Transport // by the last number of the client's address
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
	e := &realEnvoy{t: t, log: &servertest.Log{}, transports: make(map[string]*http.Transport)}
	for i := range 10 {
		from := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 2, byte(i))}}
		e.transports[strconv.Itoa(i)] = &http.Transport{DialContext: from.DialContext}
	}
	cmd := exec.Command(program, "-c", dir+"/envoy.yaml", "--admin-address-path", dir+"/admin", "--disable-hot-restart",
		"--concurrency", "2", "--log-level", "warning")
	cmd.Stdout, cmd.Stderr = e.log, e.log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		for _, transport := range e.transports {
			transport.CloseIdleConnections()
		}
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			t.Error("Envoy does not end on SIGTERM")
			_ = cmd.Process.Kill()
			<-ended
		}
		if t.Failed() {
			t.Logf("Envoy said:\n%s", e.log)
		}
	})
	servertest.Wait(t, "Envoy does not listen", func() bool {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("Envoy has ended with %v: %s", err, e.log)
		default:
		}
		address, err := os.ReadFile(dir + "/admin")
		e.admin = "http://" + string(address)
		return err == nil && len(address) > 0 && e.ready()
	})
	return e
}

// ready reports whether Envoy listens.
func (e *realEnvoy) ready() bool {
	res, err := http.Get(e.admin + "/ready")
	if err != nil {
		return false
	}
	_ = res.Body.Close()
	e.address = e.listener("web")
	return res.StatusCode == 200 && e.address != ""
}

// listener returns the address of a listener, or "" if there is none of that name.
func (e *realEnvoy) listener(name string) string {
	e.t.Helper()
	var all struct {
		Statuses []struct {
			Name    string `json:"name"`
			Address struct {
				Socket struct {
					Host string `json:"address"`
					Port int    `json:"port_value"`
				} `json:"socket_address"`
			} `json:"local_address"`
		} `json:"listener_statuses"`
	}
	_, text := get(e.t, e.admin+"/listeners?format=json")
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		e.t.Fatal(err)
	}
	for _, l := range all.Statuses {
		if l.Name == name {
			return net.JoinHostPort(l.Address.Socket.Host, strconv.Itoa(l.Address.Socket.Port))
		}
	}
	return ""
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

func (e *realEnvoy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	req := r.Clone(e.t.Context())
	req.URL.Scheme, req.URL.Host, req.RequestURI = "http", e.address, ""
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	res, err := e.transports[strings.TrimPrefix(host, "192.0.2.")].RoundTrip(req)
	if err != nil {
		e.t.Errorf("Envoy does not answer: %v", err)
		return
	}
	defer func() { _ = res.Body.Close() }()
	for name, values := range res.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(res.StatusCode)
	_, _ = io.Copy(w, res.Body)
}

// post sends a body of so many bytes from 192.0.2.client.
func (e *realEnvoy) post(client int, path string, size int) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, path, bytes.NewReader(make([]byte, size)))
	r.RemoteAddr = fmt.Sprintf("192.0.2.%d:1234", client)
	rec := httptest.NewRecorder()
	e.ServeHTTP(rec, r)
	return rec
}

// through sends a request from an address through an Envoy. Headers are name, value, ….
func through(f http.Handler, address string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = address + ":1234"
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	rec := httptest.NewRecorder()
	f.ServeHTTP(rec, r)
	return rec
}
