package logs

import (
	"crypto/rand"
	"fmt"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"

	"example.com/sash"
	"example.com/sash/service/internal/replay"
	"example.com/sash/service/internal/replay/accesslog"
)

// logs is the flags of commands on access logs.
type logs struct {
	format      string
	trusted     []string
	fields      map[string]string
	expressions replay.Expressions
	hide        bool
	json        bool
	strict      bool
	policy      policyFlags

	names func(client string) string // returns a client as outputs name it
}

func (l *logs) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&l.format, "log-format", "", "`text` of nginx's log_format or Apache's LogFormat, or one of "+
		strings.Join(accesslog.FormatNames(), ", ")+" (default: detected)")
	f.StringToStringVar(&l.fields, "field", nil, "JSON key or column of a field with an unusual `name`, such as time=when; fields are "+
		strings.Join(accesslog.Fields(), ", "))
	f.StringSliceVar(&l.trusted, "trusted-proxies", nil,
		"`networks` of your proxies, such as 10.0.0.0/8: the client is the last forwarded address outside them")
	f.StringVar(&l.expressions.Key, "key", "remote_address", "subject that a request is charged to, as an `expression`")
	f.StringVar(&l.expressions.Cost, "cost", "1", "units of a request, as an `expression`")
	f.StringVar(&l.expressions.Where, "where", "", "requests that count, as an `expression` (default: all)")
	f.StringArrayVar(&l.expressions.Routes, "route", nil,
		"`pattern` such as 'GET /users/{id}', whose requests count as one route; repeat it for several")
	f.BoolVar(&l.hide, "hide-clients", false, "write an HMAC instead of each client, with a key that is made for this run")
	f.BoolVar(&l.strict, "strict", false, "exit with 3 after a warning, such as that clients may be misread or a file is damaged")
	f.BoolVar(&l.json, "json", false, "answer in JSON")
}

// expressionHelp is the part of the help that commands on access logs share.
const expressionHelp = `The format is detected from the first lines: common or combined (also nginx's main, vhost_combined
and Traefik's), JSON lines (nginx, Caddy, Traefik, Envoy), HAProxy, Envoy, AWS load balancers,
logfmt, or CSV whose first line names the columns; and so is what stands around the lines:
container runtimes, compose, syslog, journald. For any other format paste the server's own with
--log-format.

Files are compressed with gzip or zstd or not at all. Without a FILE, or for "-", standard input is
read. Files, such as rotated ones, and lines may be out of order. Broken lines are counted and the
first of them shown. Of a file that is cut off everything before the damage counts.

The answer begins with what was understood: read it first. A warning says that clients or times look
misread; --strict makes it an exit code.

Expressions are in the language of github.com/expr-lang/expr over remote_address, user, method,
path, query, route, host, status, bytes, duration, user_agent and referer, with header("X-Api-Key"),
field("any.name"), prefix(remote_address, 24, 64) for the network of an address, and key(user,
route) for several parts:

  --key 'prefix(remote_address, 24)'   --cost 'method == "GET" ? 1 : 5'
  --where 'status < 500 && path startsWith "/api/"'

A cost that is a fraction is rounded up. A request for which an expression fails because the line
has no such field is not charged, and how many lines lack the field is reported.`

// hiding sets the function that names clients.
func (l *logs) hiding() error {
	l.names = func(client string) string { return client }
	if !l.hide {
		return nil
	}
	secret := make([]byte, 32)
	_, err := rand.Read(secret)
	l.names = func(client string) string { return sash.Secret(secret, client)[:16] }
	return err
}

// networks parses networks and single addresses.
func networks(texts []string) (all []netip.Prefix, err error) {
	for _, text := range texts {
		one, err := netip.ParsePrefix(text)
		if address, notAddress := netip.ParseAddr(text); err != nil && notAddress == nil {
			one, err = netip.PrefixFrom(address, address.BitLen()), nil
		}
		if err != nil {
			return nil, fmt.Errorf("--trusted-proxies: %q is neither a network such as 10.0.0.0/8 nor an address", text)
		}
		all = append(all, one)
	}
	return all, nil
}
