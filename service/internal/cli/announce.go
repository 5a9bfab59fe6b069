package cli

import (
	"encoding/json"
	"fmt"
	"net"
	"strings"

	"example.com/sash/service/internal/config"
)

// announce says where the service is and how to try it.
func (a *app) announce(s *serving, on *listeners, store, name string, cfg *config.Config) error {
	url := "http://" + reachable(on.http.Addr())
	if s.json {
		said := map[string]any{"url": url, "addr": on.http.Addr().String(), "store": store, "configuration": name, "domains": cfg.Domains()}
		if on.grpc != nil {
			said["grpc"] = on.grpc.Addr().String()
		}
		if on.admin != nil {
			said["admin"] = on.admin.Addr().String()
		}
		return writeJSON(a.out, said)
	}
	out := &lines{to: a.out}
	out.say("sash listens on %s", url)
	if on.grpc != nil {
		out.say("  gRPC           %s: Envoy's rate limit protocol", reachable(on.grpc.Addr()))
	}
	if on.admin != nil {
		out.say("  admin          %s://%s", s.scheme(), reachable(on.admin.Addr()))
		out.say("  dashboard      %s://%s/dashboard", s.scheme(), reachable(on.admin.Addr()))
	}
	out.say("  store          %s", store)
	out.say("  configuration  %s: domains %s", name, strings.Join(cfg.Domains(), ", "))
	if len(cfg.Rules()) > 0 {
		out.say("\nTry it:\n\n  %s\n", curl(url, cfg.Rules()[0]))
	}
	return out.err
}

// reachable is an address as a client on the same machine writes it.
func reachable(addr net.Addr) string {
	host, port, err := net.SplitHostPort(addr.String())
	if err != nil {
		return addr.String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return net.JoinHostPort(host, port)
}

// curl is a command line that asks for a rule's subject.
func curl(url string, rule *config.Rule) string {
	entries := make([]config.Entry, len(rule.Path))
	for i, e := range rule.Path {
		if e.Value == "" {
			e.Value = "example"
			if e.Key == "remote_address" {
				e.Value = "192.0.2.7"
			}
		}
		entries[i] = e
	}
	body, _ := json.Marshal(map[string]any{"domain": rule.Domain, "entries": entries}) // texts only
	return fmt.Sprintf("curl -i -H 'Content-Type: application/json' -d '%s' %s/v1/allow", strings.ReplaceAll(string(body), "'", `'\''`), url)
}
