package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"example.com/sash/internal/redistest"
	"example.com/sash/service/internal/servertest"
)

// An orchestrator sends SIGTERM, and its load balancers need a while. Somebody at a terminal does not want to wait.
func TestOnlySIGTERMWaitsForLoadBalancers(t *testing.T) {
	p := spawn(t, nil, "--drain-delay", "1h")
	servertest.Check(t, p.cmd.Process.Signal(os.Interrupt))
	if err := <-p.ended; err != nil || strings.Contains(p.logs.String(), "health is down") || strings.Count(p.logs.String(), "stopping") != 1 {
		t.Errorf("an interrupt ends it with %v: %s", err, p.logs)
	}
	p = run(t, exec.Command(binary, "serve", "--addr", "127.0.0.1:0", "--grpc-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0"))
	servertest.Check(t, p.interrupt())
	servertest.Wait(t, "the default is not 5 s", func() bool { return strings.Contains(p.logs.String(), "for=5s") })
	began := time.Now()
	if err := p.interrupt(); err != nil { // the second ends it at once
		t.Fatal(err)
	}
	if <-p.ended; time.Since(began) > 3*time.Second {
		t.Errorf("the second signal ends it after %v", time.Since(began))
	}
}

// SIGHUP ends nothing, and a configuration that was written before it is in use soon.
func TestSIGHUPIsNoEnd(t *testing.T) {
	file := tempFile(t, "limits.yaml", webRule)
	p := spawn(t, nil, "--config", file)
	put(t, file, strings.Replace(webRule, "4/1h", "7/1h", 1))
	servertest.Check(t, p.cmd.Process.Signal(syscall.SIGHUP))
	servertest.Wait(t, "the configuration is not read again", func() bool { return strings.Contains(request(t, "GET", p.admin+"/rlconfig", ""), "7/1h") })
	p.stopped(t)
}

// Nothing ends it when whoever read its log has gone: it stops as it would have.
func TestALogThatNobodyReadsEndsNothing(t *testing.T) {
	read, write, err := os.Pipe()
	servertest.Check(t, err)
	cmd := exec.Command(binary, append([]string{"serve"}, freePorts...)...)
	cmd.Stderr = write
	p := run(t, cmd)
	if err := errors.Join(read.Close(), write.Close(), p.interrupt()); err != nil { // stopping is logged
		t.Fatal(err)
	}
	servertest.Check(t, <-p.ended)
}

const webRule = "domain: web\ndescriptors:\n- key: remote_address\n  limits: [4/1h]\n"

func TestTheCurlLinesOfTheReadme(t *testing.T) {
	p, token := serve(t), ""
	lines := regexp.MustCompile(`(?m)^curl -d '([^']*)' localhost:8080(\S+) +# (.*)$`).FindAllStringSubmatch(string(readFile(t, repository+"/README.md")), -1)
	for _, line := range lines {
		status, said := post(t, p.url+line[2], strings.ReplaceAll(line[1], "TOKEN", token))
		if reserved, ok := said["token"].(string); ok {
			token = reserved
		}
		answer, err := json.Marshal(said)
		want := strings.ReplaceAll(strings.TrimPrefix(line[3], "{…,"), "TOKEN", token)
		if err != nil || status != 200 || !strings.Contains(string(answer), strings.TrimSuffix(want, "}")) {
			t.Errorf("%s: %d %s", line[0], status, answer)
		}
	}
	if len(lines) != 2 || token == "" {
		t.Errorf("%d lines, token %q", len(lines), token)
	}
}

const examples = repository + "/examples"

// The examples of proxies share one valid configuration, and the command of docs/proxies.md exists. make test-proxies tests
// the proxies themselves. No example hands a client's X-Sash-Token on to Sash, where a wrong one is 401 and a right one is
// the proxy's: the requests of make test-proxies bring one, but Traefik is not among its proxies.
func TestExamplesOfProxies(t *testing.T) {
	policy := string(readFile(t, examples+"/nginx/policy.yaml"))
	for file, drop := range map[string]string{
		"caddy/Caddyfile":              "header_up -X-Sash-Token",
		"caddy/forward_auth.Caddyfile": "header_up -X-Sash-Token",
		"haproxy/sash.lua":             "no other headers of the client",
		"nginx/nginx.conf":             "proxy_pass_request_headers off;",
		"traefik/dynamic.yaml":         "authRequestHeaders: [Accept]",
	} {
		text := string(readFile(t, filepath.Join(examples, file)))
		asks := strings.Count(text, "/v1/forward-auth") + strings.Count(text, "-- build returns the request to Sash")
		if n := strings.Count(text, drop); asks == 0 || n != asks {
			t.Errorf("%s asks Sash in %d places, and drops headers of the client in %d: want %q", file, asks, n, drop)
		}
		if text := string(readFile(t, filepath.Join(examples, filepath.Dir(file), "policy.yaml"))); text != policy {
			t.Errorf("the policy beside %s differs from that of nginx", file)
		}
	}
	command := regexp.MustCompile(`\nbin/sash (serve .*--config examples/nginx/policy.yaml.*)`).FindStringSubmatch(string(readFile(t, repository+"/docs/proxies.md")))
	if command == nil {
		t.Fatal("docs/proxies.md does not start sash with an example's policy")
	}
	for _, line := range []string{command[1] + " --help", "config check " + examples + "/nginx/policy.yaml"} {
		if code, out, failed := sash(t, nil, strings.Fields(line)...); code != 0 {
			t.Errorf("%s: %s%s", line, out, failed)
		}
	}
	serve(t, "--config", examples+"/envoy/policy.yaml", "--access", examples+"/envoy/access.yaml")
}

// The example of regions runs with one command, and never admits more than its limit.
func TestTheExampleOfRegionsRuns(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), examples+"/regions/run.sh")
	cmd.Env = append(os.Environ(), "SASH="+binary, "PORT="+portOf(freeAddress(t, 5)))
	cmd.WaitDelay = time.Second
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	var east, west, fromEast, fromWest, all int
	_, err = fmt.Sscanf(string(text), "east: %d of 150 calls admitted, %d of them without a trip to the home\n"+
		"west: %d of 150 calls admitted, %d of them without a trip to the home\ntogether: %d of 200 in 10m", &east, &fromEast, &west, &fromWest, &all)
	if err != nil || all != east+west || all > 200 || all < 150 || fromEast+fromWest < all/2 {
		t.Errorf("%v: %s", err, text)
	}
}

// With 256 descriptors, clients that connect and do nothing hold both data ports at their bounds. The admin port is
// not affected, and the data ports answer everyone else.
func TestIdleConnectionsHoldNoPort(t *testing.T) {
	p := run(t, exec.Command("sh", append([]string{"-c", `ulimit -n 256; exec "$0" serve "$@"`, binary}, freePorts...)...))
	for i := range 300 {
		for _, addr := range []string{strings.TrimPrefix(p.url, "http://"), p.grpc} {
			conn := servertest.Must(net.DialTimeout("tcp", addr, 20*time.Second))(t)
			defer func() { _ = conn.Close() }()
			if i%2 == 0 {
				_, _ = io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n") // and then idle
			}
		}
	}
	for range 60 { // HTTP/2 takes more than a connection to be established
		conn := servertest.Must(net.DialTimeout("tcp", p.grpc, 20*time.Second))(t)
		defer func() { _ = conn.Close() }()
		_, _ = io.WriteString(conn, http2.ClientPreface+"\x00\x00\x00\x04\x00\x00\x00\x00\x00") // and empty settings
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 20 * time.Second}
	for _, url := range []string{p.admin + "/metrics", p.url + "/healthz", p.admin + "/metrics"} {
		if res, _ := sendBy(t, client, "GET", url, ""); res.StatusCode != 200 {
			t.Errorf("%s: %s", url, res.Status)
		}
	}
	if _, err := p.asks(t, "demo")("remote_address=a"); err != nil {
		t.Errorf("a gRPC call fails: %v", err)
	}
}

const policies = `
domain: d
descriptors:
  - {key: closed, limits: [1000/1h]}
  - {key: local, limits: [20/1h], on_unavailable: local}
  - {key: cost, limits: [1000/1h], on_unavailable: {1: open, 20: local}}
`

type outcome struct {
	Remaining            int64
	Source, Cause, Error string

	status int
}

func (p *service) decide(t *testing.T, key string, cost int64) outcome {
	t.Helper()
	res, text := send(t, "POST", p.url+"/v1/allow", subject("d", key, "a", fmt.Sprint(`,"cost":`, cost)))
	o := decode[outcome](t, text)
	o.status = res.StatusCode
	return o
}

// servePolicies starts a service with a rule of either failure mode.
func servePolicies(t *testing.T, args ...string) *service {
	t.Helper()
	return serve(t, append([]string{"--config", tempFile(t, "policies.yaml", policies), "--budget", budget.String()}, args...)...)
}

const budget = 100 * time.Millisecond

func TestServeWritesLocalAdmissionsWhenItStops(t *testing.T) {
	server := redistest.Start(t)
	p := servePolicies(t, "--redis", server.Addr(), "--instances", "2")
	server.Stop()
	p.decide(t, "closed", 1) // finds the broken connection: a call on it may have been charged
	if o := p.decide(t, "cost", 1); o.status != 200 || o.Source != "policy" || o.Cause == "" {
		t.Errorf("a cost for which the mode is open: %+v", o)
	}
	for i := range 11 { // of 20, two instances have 10 each
		if o := p.decide(t, "local", 1); (o.status == 200) != (i < 10) || o.Source != "local" {
			t.Fatalf("call %d: %+v", i, o)
		}
	}
	server.Restart()
	if logs := p.stopped(t); !strings.Contains(logs, "written=10 lost=0 ") {
		t.Errorf("units are lost: %s", logs)
	}
	next := servePolicies(t, "--redis", server.Addr(), "--budget", "5s")
	if o := next.decide(t, "local", 1); o.Source != "store" || o.Remaining != 20-10-1 {
		t.Errorf("the next instance finds %+v, want 9 of 20 units left", o)
	}
}
