package main

import (
	"path/filepath"
	"strings"
	"testing"
)

const examples = repository + "/examples"

// The examples of proxies share one valid configuration, and the command of docs/proxies.md exists. make test-proxies tests
// the proxies themselves.
func TestExamplesOfProxies(t *testing.T) {
	var policy string
	for _, proxy := range []string{"nginx", "caddy", "haproxy", "traefik"} {
		file := filepath.Join(examples, proxy, "policy.yaml")
		if code, out, failed := sash(t, nil, "config", "check", file); code != 0 {
			t.Errorf("%s: %s%s", file, out, failed)
		}
		text := string(readFile(t, file))
		if policy == "" {
			policy = text
		} else if policy != text {
			t.Errorf("%s differs from the others", file)
		}
	}
	_, command, found := strings.Cut(string(readFile(t, repository+"/docs/proxies.md")), "\nbin/sash ")
	command, _, _ = strings.Cut(command, "\n")
	if !found || !strings.Contains(command, "--config examples/nginx/policy.yaml") {
		t.Fatal("docs/proxies.md does not start sash with an example's policy")
	}
	if code, _, failed := sash(t, nil, append(strings.Fields(command), "--help")...); code != 0 {
		t.Errorf("%s: %s", command, failed)
	}
}

// The files of Sash in Envoy's example are valid. make test-envoy runs the example.
func TestTheExampleOfEnvoyIsValid(t *testing.T) {
	dir := examples + "/envoy/"
	if code, out, failed := sash(t, nil, "config", "check", dir+"policy.yaml"); code != 0 {
		t.Errorf("%s%s", out, failed)
	}
	serve(t, "--config", dir+"policy.yaml", "--access", dir+"access.yaml")
}

// No example hands a client's X-Sash-Token on to Sash, where a wrong one is 401 and a right one is the proxy's. The
// requests of make test-proxies bring one, but Traefik is not among its proxies.
func TestExamplesOfProxiesDropATokenOfTheirClient(t *testing.T) {
	for file, drop := range map[string]string{
		"caddy/Caddyfile":              "header_up -X-Sash-Token",
		"caddy/forward_auth.Caddyfile": "header_up -X-Sash-Token",
		"haproxy/sash.lua":             "no other headers of the client",
		"nginx/nginx.conf":             "proxy_pass_request_headers off;",
		"traefik/dynamic.yaml":         "authRequestHeaders: [Accept]",
	} {
		text := readFile(t, filepath.Join(examples, file))
		asks := strings.Count(string(text), "/v1/forward-auth") + strings.Count(string(text), "-- build returns the request to Sash")
		if n := strings.Count(string(text), drop); asks == 0 || n != asks {
			t.Errorf("%s asks Sash in %d places, and drops headers of the client in %d: want %q", file, asks, n, drop)
		}
	}
}
