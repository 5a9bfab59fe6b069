//go:build clients

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// wireClients installs the clients in a directory of the test: the versions of Node's packages are those of the
// lock file.
func wireClients(t *testing.T) []wireClient {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/clients")); err != nil {
		t.Fatal(err)
	}
	npm := exec.CommandContext(t.Context(), "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	npm.Dir = dir
	install := exec.CommandContext(t.Context(), "go", "install", "github.com/fullstorydev/grpcurl/cmd/grpcurl@"+grpcurlVersion)
	install.Env = append(os.Environ(), "GOBIN="+dir, "GOFLAGS=", "GOWORK=off")
	for _, cmd := range []*exec.Cmd{npm, install} {
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
		}
	}
	return []wireClient{
		{"grpcurl", grpcurl(filepath.Join(dir, "grpcurl"))},
		{"node", lines("node", filepath.Join(dir, "client.js"))},
		{"python", lines("/usr/bin/python3", filepath.Join(dir, "client.py"))}, // Debian's, which has its packages
	}
}

const wireRules = `
domain: d
descriptors:
  - key: ip
    rate_limit: {unit: minute, requests_per_unit: 3, name: per-ip}
  - key: ip
    value: 192.0.2.66
    rate_limit: {unit: second, requests_per_unit: 0}
  - key: day
    rate_limit: {unit: day, requests_per_unit: 10}
`

func serveWire(t *testing.T, env ...string) *service {
	t.Helper()
	file := tempFile(t, "limits.yaml", wireRules)
	env = append(env, "LIMIT_RESPONSE_HEADERS_ENABLED=true")
	access := filepath.Join(filepath.Dir(file), "access.yaml")
	put(t, access, "anonymous: {allow: [decide, refund, override]}\n")
	return serveIn(t, env, "--config", file, "--access", access, "--addr", "127.0.0.1:0", "--grpc-addr", "127.0.0.1:0", "--admin-addr", "")
}

// descriptors is a request; each descriptor is "key=value", with other fields after a semicolon.
func descriptors(domain, more string, all ...string) wireCall {
	var list []string
	for _, text := range all {
		entry, fields, _ := strings.Cut(text, ";")
		key, value, _ := strings.Cut(entry, "=")
		if fields != "" {
			fields = "," + fields
		}
		list = append(list, fmt.Sprintf(`{"entries":[{"key":%q,"value":%q}]%s}`, key, value, fields))
	}
	return wireCall{limitMethod, json.RawMessage(fmt.Sprintf(`{"domain":%q,"descriptors":[%s]%s}`, domain, strings.Join(list, ","), more))}
}

// Every client gets the same answers to the same calls.
func TestClientsOfOthersUnderstandAndAreUnderstood(t *testing.T) {
	healthOf := func(name string) wireCall {
		return wireCall{healthMethod, json.RawMessage(fmt.Sprintf(`{"service":%q}`, name))}
	}
	scenario := []struct {
		what string
		call wireCall
		want string
	}{
		{"allowed", descriptors("d", "", "ip=a"), "OK: OK per-ip3/MINUTE 2 left"},
		{"statuses in the order of the request", descriptors("d", "", "day=x", "other=x", "ip=a"), "OK: OK 10/DAY 9 left | OK | OK per-ip3/MINUTE 1 left"},
		{"units of the request", descriptors("d", `,"hitsAddend":5`, "day=x"), "OK: OK 10/DAY 4 left"},
		{"a look", descriptors("d", "", `day=x;"hitsAddend":0`), "OK: OK 10/DAY 4 left"},
		{"given back", descriptors("d", "", `day=x;"hitsAddend":3,"isNegativeHits":true`), "OK: OK 10/DAY 7 left"},
		{"refused, and free", descriptors("d", "", `day=x;"hitsAddend":8`), "OVER_LIMIT: OVER_LIMIT 10/DAY 7 left"},
		{"one refuses for all", descriptors("d", "", "day=x", "ip=192.0.2.66"), "OVER_LIMIT: OK 10/DAY 7 left | OVER_LIMIT 0/SECOND 0 left"},
		{"a limit in the request", descriptors("d", "", `ip=b;"limit":{"requestsPerUnit":1,"unit":"HOUR"}`), "OK: OK 1/HOUR 0 left"},
		{"that is used up", descriptors("d", "", `ip=b;"limit":{"requestsPerUnit":1,"unit":"HOUR"}`), "OVER_LIMIT: OVER_LIMIT 1/HOUR 0 left"},
		{"a limit without a unit", descriptors("d", "", `ip=b;"limit":{"requestsPerUnit":1,"unit":"UNKNOWN"}`), "INVALIDARGUMENT"},
		{"no domain", descriptors("", "", "ip=a"), "INVALIDARGUMENT"},
		{"no descriptors", descriptors("d", ""), "INVALIDARGUMENT"},
		{"a domain that nobody configured", descriptors("else", "", "ip=a"), "OK: OK"},
		{"health", healthOf("ratelimit"), "SERVING"},
		{"health of all", healthOf(""), "SERVING"},
		{"health of another", healthOf("other"), "NOTFOUND"},
	}
	var calls []wireCall
	for _, step := range scenario {
		calls = append(calls, step.call)
	}
	for _, client := range wireClients(t) {
		t.Run(client.name, func(t *testing.T) {
			answers := client.ask(t, serveWire(t).grpc, &clientTLS{}, calls)
			if len(answers) != len(scenario) {
				t.Fatalf("%d answers to %d calls", len(answers), len(scenario))
			}
			for i, step := range scenario {
				if got := answers[i].String(); got != step.want {
					t.Errorf("%s: %s %s, want %s", step.what, got, answers[i].Message, step.want)
				}
			}
			first := answers[0].Response
			if got := fmt.Sprint(first.ResponseHeadersToAdd); got != "[{RateLimit-Limit 3} {RateLimit-Remaining 2} {RateLimit-Reset 60}]" || first.Statuses[0].DurationUntilReset != "60s" {
				t.Errorf("headers %s, reset %s", got, first.Statuses[0].DurationUntilReset)
			}

			files := selfSigned(t)
			secure := serveWire(t, "GRPC_SERVER_USE_TLS=true", "GRPC_SERVER_TLS_CERT="+files.cert, "GRPC_SERVER_TLS_KEY="+files.key, "GRPC_CLIENT_TLS_CACERT="+files.ca)
			unknown := &clientTLS{ca: files.ca}
			if a := client.ask(t, secure.grpc, files, calls[:1])[0]; a.String() != scenario[0].want {
				t.Errorf("with certificates: %s %s", &a, a.Message)
			}
			if a := client.ask(t, secure.grpc, unknown, calls[:1])[0]; a.String() != "UNAVAILABLE" {
				t.Errorf("without a certificate of its own: %s %s", &a, a.Message)
			}
		})
	}
}

// The server describes its services, and the messages of its protocol with all types that they use.
func TestClientsCanAskForTheSchema(t *testing.T) {
	program := filepath.Join(t.TempDir(), "grpcurl")
	install := exec.CommandContext(t.Context(), "go", "install", "github.com/fullstorydev/grpcurl/cmd/grpcurl@"+grpcurlVersion)
	install.Env = append(os.Environ(), "GOBIN="+filepath.Dir(program), "GOFLAGS=", "GOWORK=off")
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	p := serveWire(t)
	for _, tt := range []struct{ args, want string }{
		{"list", "envoy.service.ratelimit.v3.RateLimitService\ngrpc.health.v1.Health\n"},
		{"describe envoy.service.ratelimit.v3.RateLimitService", "rpc ShouldRateLimit ( .envoy.service.ratelimit.v3.RateLimitRequest ) returns ( .envoy.service.ratelimit.v3.RateLimitResponse )"},
		{"describe envoy.extensions.common.ratelimit.v3.RateLimitDescriptor", "google.protobuf.UInt64Value hits_addend"},
	} {
		out, err := exec.CommandContext(t.Context(), program, append([]string{"-plaintext", p.grpc}, strings.Fields(tt.args)...)...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), tt.want) {
			t.Errorf("%s: %v\n%s", tt.args, err, out)
		}
	}
}
