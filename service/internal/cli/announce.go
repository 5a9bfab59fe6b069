package cli

import (
	"cmp"
	"crypto/tls"
	"encoding/json"
	"net"
	"slices"
	"strings"

	"example.com/sash/service/internal/access"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/output"
	"example.com/sash/service/internal/serve"
)

// announce prints where the service listens and a command to try it.
func (a *app) announce(s *serving, on serve.Listening) error {
	scheme := func(tls *tls.Config) string {
		if tls != nil {
			return "https://"
		}
		return "http://"
	}
	url := scheme(s.opts.TLS) + reachable(on.HTTP)
	said := map[string]any{
		"url": url, "addr": on.HTTP.String(), "store": on.Store, "configuration": on.ConfigName, "domains": on.Config.Domains(),
	}
	open, rows := make(map[string]string), [][]string{}
	for _, port := range on.Open {
		said[port.Name], open[port.Name] = port.Addr, port.To
		rows = append(rows, []string{"    " + port.Name, port.Addr, port.To})
	}
	said["open"] = open
	return output.Print(a.out, s.json, said, func(out *output.Text) {
		out.Say("sash listens on %s", url)
		if on.GRPC != nil {
			out.Say("  gRPC           %s: Envoy's rate limit protocol", reachable(on.GRPC))
		}
		if on.RESP != nil {
			out.Say("  RESP           %s: the protocol of Redis, such as redis-cli", reachable(on.RESP))
		}
		if on.Admin != nil {
			out.Say("  admin          %s\n  dashboard      %[1]s/dashboard", scheme(s.opts.AdminTLS)+reachable(on.Admin))
		}
		out.Say("  store          %s", on.Store)
		out.Say("  open to")
		out.Rows(0, rows)
		out.Say("  configuration  %s: domains %s", on.ConfigName, strings.Join(on.Config.Domains(), ", "))
		if rules := on.Config.Rules(); len(rules) > 0 {
			s.tryIt(out, url, rules[0])
		}
	})
}

// tryIt prints a command that asks for a unit of a subject of a rule, with what the caller has to show for it.
func (s *serving) tryIt(out *output.Text, url string, rule *config.Rule) {
	credentials, needs := "", ""
	if s.opts.AccessFile != "" {
		credentials, needs = " -H 'Authorization: Bearer TOKEN'", ", with the token of a client in "+s.opts.AccessFile
	}
	if access.Verifies(s.opts.TLS) {
		credentials, needs = " --cert CERTIFICATE --key KEY"+credentials, ", with a certificate of a client"+needs
	}
	entries := slices.Clone(rule.Path)
	for i := range entries {
		if entries[i].Value == "" && entries[i].Key == "remote_address" {
			entries[i].Value = "192.0.2.7"
		}
		entries[i].Value = cmp.Or(entries[i].Value, "example")
	}
	body, _ := json.Marshal(map[string]any{"domain": rule.Domain, "entries": entries}) // strings only: it cannot fail
	out.Say("\nTry it%s:\n\n  curl -i%s -H 'Content-Type: application/json' -d '%s' %s/v1/allow\n", needs, credentials,
		strings.ReplaceAll(string(body), "'", `'\''`), url)
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
