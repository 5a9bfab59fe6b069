package cli

import (
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strings"

	"example.com/sash/service/internal/access"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/serve"
)

// announce prints where the service listens and a command to try it.
func (a *app) announce(s *serving, on serve.Listening) error {
	url := "http://" + reachable(on.HTTP)
	if s.opts.TLS != nil {
		url = "https://" + reachable(on.HTTP)
	}
	if s.json {
		said := map[string]any{"url": url, "addr": on.HTTP.String(), "store": on.Store, "configuration": on.ConfigName, "domains": on.Config.Domains()}
		if on.GRPC != nil {
			said["grpc"] = on.GRPC.String()
		}
		if on.RESP != nil {
			said["resp"] = on.RESP.String()
		}
		if on.Admin != nil {
			said["admin"] = on.Admin.String()
		}
		return a.print(true, said, nil)
	}
	out := &text{to: a.out}
	out.say("sash listens on %s", url)
	if on.GRPC != nil {
		out.say("  gRPC           %s: Envoy's rate limit protocol", reachable(on.GRPC))
	}
	if on.RESP != nil {
		out.say("  RESP           %s: the protocol of Redis, such as redis-cli", reachable(on.RESP))
	}
	if on.Admin != nil {
		scheme := "http"
		if s.opts.AdminTLS != nil {
			scheme = "https"
		}
		out.say("  admin          %s://%s", scheme, reachable(on.Admin))
		out.say("  dashboard      %s://%s/dashboard", scheme, reachable(on.Admin))
	}
	out.say("  store          %s", on.Store)
	out.say("  configuration  %s: domains %s", on.ConfigName, strings.Join(on.Config.Domains(), ", "))
	if rules := on.Config.Rules(); len(rules) > 0 {
		s.tryIt(out, url, rules, on.Anonymous)
	}
	return out.err
}

// tryIt prints a command for a rule that anyone may use, or for the first one and what the caller has to show for it.
func (s *serving) tryIt(out *text, url string, rules []*config.Rule, anonymous func(domain string) bool) {
	rule, credentials, needs := rules[0], "", ""
	if i := slices.IndexFunc(rules, func(r *config.Rule) bool { return anonymous(r.Domain) }); i >= 0 {
		rule = rules[i]
	} else {
		credentials = " -H 'Authorization: Bearer TOKEN'"
		needs = fmt.Sprintf(", with the token of a client in %s that may decide in the domain %s", s.opts.AccessFile, rule.Domain)
	}
	if access.Verifies(s.opts.TLS) {
		credentials, needs = " --cert CERTIFICATE --key KEY"+credentials, ", with a certificate of a client"+needs
	}
	out.say("\nTry it%s:\n\n  %s\n", needs, curl(url, credentials, rule))
}

// reachable returns an address as a client on the same machine writes it.
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

// curl returns a command that asks for a unit of a subject of the rule, with the caller's credentials.
func curl(url, credentials string, rule *config.Rule) string {
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
	body, _ := json.Marshal(map[string]any{"domain": rule.Domain, "entries": entries}) // strings only: it cannot fail
	return fmt.Sprintf("curl -i%s -H 'Content-Type: application/json' -d '%s' %s/v1/allow", credentials, strings.ReplaceAll(string(body), "'", `'\''`), url)
}
