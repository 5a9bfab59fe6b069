package cli

import (
	"cmp"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"example.com/sash/failover"
	"example.com/sash/memstore"
	"example.com/sash/service/internal/access"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/envoy"
	"example.com/sash/service/internal/output"
	"example.com/sash/service/internal/serve"
)

// serving holds the flags of sash serve: those that set an option directly, and the others.
type serving struct {
	opts  serve.Options
	level string
	json  bool

	cert, key, clientCA                                string
	adminTokenFile, adminCert, adminKey, adminClientCA string
}

// asRatelimit is the path of the command in the image of Envoy's rate limit service. A program at this path runs sash serve.
const asRatelimit = "/bin/ratelimit"

func (a *app) serve() *cobra.Command {
	s := &serving{}
	cmd := &cobra.Command{
		Use:     "serve",
		Aliases: []string{asRatelimit},
		Short:   "Answer decisions over HTTP and Envoy's gRPC protocol",
		Long: `Answer decisions over HTTP, Envoy's gRPC protocol and the protocol of Redis. A configuration has the
limits (see sash config); this process's memory, or a Redis that instances share, has the charges.

  POST /v1/allow            {"domain":"demo","entries":[{"key":"user","value":"42"}],"cost":1}
  POST /v1/peek, /v1/reserve, /v1/settle, /v1/cancel
  GET  /v1/forward-auth     for nginx, Caddy, Traefik and HAProxy
  GET  /healthz             for readiness: "ok", or "degraded" and why
  GET  /openapi.yaml        describes them all

An answer is 200, or 429 with Retry-After. The gRPC address serves Envoy's RateLimitService and
reads the variables of its implementation, which is replaced under the name ratelimit.

If Redis does not decide within --budget, the rule's on_unavailable does: closed (503, the default),
open, or local, this instance's share of the limit. Redis may be away at the start too. A rule with
scope: global has one limit over all regions; its home keeps the charges, and each region leases
units. Without Redis, --memory-max-bytes bounds the memory, and a restart forgets the charges.

The configuration and the certificates are read again when their files change. A wrong one is
logged, and the last valid one stays in use.

SIGTERM ends the service: health is down at once, requests are answered for --drain-delay, and those
in flight have ten seconds more. An interrupt (Ctrl-C) does not wait, and a second signal ends the
process.

More variables: SASH_ALGORITHM, SASH_ADMIN_TOKEN, ` + tokenKeyVariable + ` (one secret, for reservations of
all instances), ` + secretKeysVariable + ` (for values that must not be stored), OTEL_EXPORTER_OTLP_ENDPOINT,
and those of Envoy's service. docs/envoy.md, security.md, admin.md, metrics.md, regions.md and
resp.md have the rest.`,
		Example: `  sash serve
  sash serve --config limits.yaml --redis redis://127.0.0.1:6379 --addr 127.0.0.1:8080`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			a.err = newLossy(a.err)
			signal.Ignore(syscall.SIGPIPE) // it would end a process whose log nobody reads any more
			if err := noneEmpty(cmd.Flags()); err != nil {
				return err
			}
			opts, err := a.options(s, cmd.CalledAs() == asRatelimit, cmd.Flags().Changed)
			if err != nil {
				return err
			}
			opts.Listening = func(on serve.Listening) error { return a.announce(s, on) }
			return serve.Run(cmd.Context(), opts)
		},
	}
	s.flags(cmd)
	return cmd
}

// noneEmpty rejects a flag with an empty value, as from an unset variable of a script: what it protects would be open.
func noneEmpty(f *pflag.FlagSet) (err error) {
	f.Visit(func(f *pflag.Flag) {
		if f.Value.String() == "" && !strings.HasSuffix(f.Name, "-addr") { // the ports that may be closed
			err = fmt.Errorf("--%s is empty: give it a value, or leave it out", f.Name)
		}
	})
	return err
}

func (s *serving) flags(cmd *cobra.Command) {
	f, o := cmd.Flags(), &s.opts
	f.StringVar(&o.Config.Path, "config", "", "configuration `file`, or a directory of files (default: $"+configVariable+", or the built-in example)")
	f.StringVar(&o.Redis, "redis", "", "`URL` of Redis: see sash help redis (default: $"+redisVariable+", or this process's memory)")
	f.StringVar(&o.Home, "home", "", "`URL` of the Redis that all regions share (default: $"+homeVariable+")")
	f.DurationVar(&o.Budget, "budget", failover.DefaultBudget, "time for Redis to make one decision")
	f.DurationVar(&o.HomeBudget, "home-budget", serve.DefaultHomeBudget, "time for the home to make one decision")
	f.Int64Var(&o.OpenPerSecond, "open-per-second", 0, "most units a second that this instance lets through by on_unavailable: open (default: no ceiling)")
	f.IntVar(&o.Instances, "instances", 0, "least number of instances, for on_unavailable: local until Redis has counted them")
	f.IntVar(&o.Replicas, "replicas", 0, "replicas that must confirm an admission within half of the budget")
	f.Int64Var(&o.Memory.MaxBytes, "memory-max-bytes", memstore.DefaultMaxBytes,
		"most bytes of subjects in memory, at least about 400 each; a new one replaces one that has used little")
	f.StringVar(&o.HTTP, "addr", ":8080", "`address` of HTTP; port 0 takes a free port")
	f.StringVar(&o.GRPC, "grpc-addr", ":8081", "`address` of gRPC, or unix:///path; empty for none")
	f.StringVar(&o.RESP, "resp-addr", "", "`address` for clients of Redis, or unix:///path")
	f.StringVar(&o.AccessFile, "access", "", "`file` of clients, their tokens and rights (default: everyone may decide, and no more)")
	f.StringVar(&s.cert, "tls-cert", "", "certificate `file` of the HTTP, gRPC and RESP addresses")
	f.StringVar(&s.key, "tls-key", "", "key `file` of that certificate")
	f.StringVar(&s.clientCA, "tls-client-ca", "", "`file` of the authorities of clients that may use these addresses")
	f.StringVar(&o.Admin, "admin-addr", "127.0.0.1:6070", "`address` of the dashboard, metrics and the admin API; empty for none")
	f.StringVar(&s.adminTokenFile, "admin-token-file", "", "`file` with tokens for subjects and changes, one a line (default: $"+adminTokenVariable+")")
	f.StringVar(&s.adminCert, "admin-tls-cert", "", "certificate `file` of the admin address")
	f.StringVar(&s.adminKey, "admin-tls-key", "", "key `file` of that certificate")
	f.StringVar(&s.adminClientCA, "admin-client-ca", "", "`file` of the authorities of clients that may use the admin address")
	f.DurationVar(&o.MaxWait, "max-wait", time.Hour, "longest wait_up_to of a request, up to 24h; 0 lets none wait")
	f.IntVar(&o.MaxConnections, "max-connections", serve.DefaultMaxConnections, "most connections of HTTP, of gRPC and of RESP, each")
	f.DurationVar(&o.DrainDelay, "drain-delay", serve.DefaultDrainDelay, "how long to answer after SIGTERM, for load balancers to notice")
	f.StringVar(&s.level, "log-level", "info", "lowest level to log: debug, info, warn or error")
	f.BoolVar(&o.Telemetry.Refusals, "log-refusals", false, "log the first refusal of each rule in each second")
	f.BoolVar(&o.Telemetry.Keys, "show-keys", false, "show subjects, which are values of requests, in traces and logs")
	f.BoolVar(&s.json, "json", false, "print the addresses and log in JSON (default: if $"+formatVariable+" is json)")
}

// announce prints where the service listens, and a command to try it.
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

// tryIt prints a command that requests a unit for a subject of a rule, with the caller's credentials.
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

// reachable returns an address in the form that a client on the same machine uses.
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

// mostLines bounds the log lines that wait to be written.
const mostLines = 1024

// A lossy writer writes in the background, and drops lines while nobody reads its output. So the service
// answers, and ends, whatever happens to its log. Each Write is one line.
type lossy struct {
	lines chan []byte // nil ends it
	lost  atomic.Int64
	ended chan struct{}
}

func newLossy(to io.Writer) *lossy {
	l := &lossy{lines: make(chan []byte, mostLines), ended: make(chan struct{})}
	go func() {
		defer close(l.ended)
		for line := range l.lines {
			if line != nil {
				_, _ = to.Write(line)
			}
			if n := l.lost.Swap(0); n > 0 {
				_, _ = fmt.Fprintf(to, "{\"level\":\"WARN\",\"msg\":\"lines of this log are lost, because nobody read it in time\",\"lines\":%d}\n", n)
			}
			if line == nil {
				return
			}
		}
	}()
	return l
}

// Write implements io.Writer. It never waits.
func (l *lossy) Write(line []byte) (int, error) {
	select {
	case l.lines <- append([]byte{}, line...):
	default:
		l.lost.Add(1)
	}
	return len(line), nil
}

// end waits for at most the given time until the lines are written, and reports whether they are. Call no Write after it.
func (l *lossy) end(within time.Duration) (all bool) {
	over := time.After(within)
	select {
	case l.lines <- nil:
	case <-over:
		return false
	}
	select {
	case <-l.ended:
		return true
	case <-over:
		return false
	}
}

// Secrets come from variables instead of flags, because lists of processes show flags.
const (
	adminTokenVariable = "SASH_ADMIN_TOKEN"
	tokenKeyVariable   = "SASH_TOKEN_KEY" // seals the tokens of reservations
	secretKeysVariable = "SASH_SECRET_KEYS"

	// The image sets these defaults. As flags, they would override the variables of Envoy's rate limit service.
	configVariable = "SASH_CONFIG"
	formatVariable = "SASH_LOG_FORMAT"
)

// leastKey is the minimum length of a key in bytes, which is that of the hash.
const leastKey = 32

// options completes the options, which hold the flags, from the environment. Given reports whether a flag was
// given: the environment does not override such a flag. Replacing says that the program runs under the name of
// Envoy's rate limit service, and thus reads all variables of that service, whichever are set.
func (a *app) options(s *serving, replacing bool, given func(flag string) bool) (serve.Options, error) {
	env, err := envoy.Read(a.env, replacing)
	if err != nil {
		return s.opts, err
	}
	s.opts.Redis = a.redisURL(s.opts.Redis, env)
	s.opts.Home = cmp.Or(s.opts.Home, a.env(homeVariable))
	o := &s.opts
	for _, step := range []func() error{
		func() error { return s.fromEnvironment(a.env, env, given) },
		s.check,
		func() error { return a.logger(&o.Log, s.level, s.json || env.LogJSON && !given("json")) },
		func() error { return s.encryption(env.TLS) },
		func() error { return s.administration(a.env(adminTokenVariable)) },
		func() error { return a.keys(&o.TokenKeys, tokenKeyVariable) },
		func() error { return a.keys(&o.SecretKeys, secretKeysVariable) },
	} {
		if err := step(); err != nil {
			return s.opts, err
		}
	}
	for _, reason := range env.Ignored {
		s.opts.Log.Warn("a variable of the environment has no effect", "variable", reason)
	}
	return s.opts, nil
}

func (a *app) logger(into **slog.Logger, name string, asJSON bool) error {
	var level slog.Level
	if err := level.UnmarshalText([]byte(name)); err != nil {
		return fmt.Errorf("--log-level %q: give debug, info, warn or error", name)
	}
	opts := &slog.HandlerOptions{Level: level}
	if *into = slog.New(slog.NewTextHandler(a.err, opts)); asJSON {
		*into = slog.New(slog.NewJSONHandler(a.err, opts))
	}
	return nil
}

// fromEnvironment sets what flags do not set, from the image and the environment of Envoy's rate limit service.
func (s *serving) fromEnvironment(image func(string) string, env *envoy.Settings, given func(flag string) bool) error {
	o, path := &s.opts, s.opts.Config.Path
	o.Variables, o.Telemetry.Exporters, o.Telemetry.Env = env.Variables, env.Telemetry, image
	switch {
	case given("config"):
		o.Management, o.Config = nil, config.Source{Path: path, Merge: env.Config.Merge, Defaults: env.Config.Defaults}
	case !env.Deployed:
		o.Config.Path = image(configVariable)
	}
	format := image(formatVariable)
	if format != "" && format != "json" && format != "text" {
		return fmt.Errorf("environment variable %s=%s: use json or text", formatVariable, format)
	}
	if !given("json") && !(env.Deployed && image("LOG_FORMAT") != "") {
		s.json = format == "json"
	}
	if !env.Deployed {
		return nil
	}
	for flag, setting := range map[string]struct {
		into  *string
		value string
	}{"addr": {&o.HTTP, env.HTTP}, "grpc-addr": {&o.GRPC, env.GRPC}, "admin-addr": {&o.Admin, env.Admin}, "log-level": {&s.level, env.LogLevel}} {
		if !given(flag) {
			*setting.into = setting.value
		}
	}
	return nil
}

func (s *serving) check() error {
	o := &s.opts
	switch {
	case o.Budget <= 0:
		return fmt.Errorf("--budget %v: give a time above zero, such as 50ms", o.Budget)
	case o.HomeBudget <= 0:
		return fmt.Errorf("--home-budget %v: give a time above zero, more than a trip to the home, such as 1s", o.HomeBudget)
	case o.OpenPerSecond < 0:
		return fmt.Errorf("--open-per-second %d: give the most units of a second, or 0 for no ceiling", o.OpenPerSecond)
	case o.Instances < 0:
		return fmt.Errorf("--instances %d: give the least number of instances that share the limits, or 0 if Redis alone counts them", o.Instances)
	case o.Replicas < 0:
		return fmt.Errorf("--replicas %d: give how many replicas must confirm an admission, or 0 to wait for none", o.Replicas)
	case o.Memory.MaxBytes < 1<<20:
		return fmt.Errorf("--memory-max-bytes %d: give the most bytes of subjects in memory, from 1048576 on", o.Memory.MaxBytes)
	case o.MaxWait < 0 || o.MaxWait > 24*time.Hour:
		return fmt.Errorf("--max-wait %v: give the longest wait of a request, from 0s (none waits) to 24h", o.MaxWait)
	case o.MaxConnections < 1:
		return fmt.Errorf("--max-connections %d: give the most connections of HTTP, of gRPC and of RESP, each, from 1 on", o.MaxConnections)
	case o.DrainDelay < 0:
		return fmt.Errorf("--drain-delay %v: give a time such as 5s, or 0 for none", o.DrainDelay)
	case o.Redis == "" && o.Replicas > 0:
		return errors.New("--replicas: only Redis has replicas: give --redis too")
	case (s.cert == "") != (s.key == "") || s.clientCA != "" && s.cert == "":
		return errors.New("--tls-cert and --tls-key belong together, and --tls-client-ca needs them")
	case (s.adminCert == "") != (s.adminKey == "") || s.adminClientCA != "" && s.adminCert == "":
		return errors.New("--admin-tls-cert and --admin-tls-key belong together, and --admin-client-ca needs them")
	}
	return nil
}

// encryption reads the certificates of all addresses. gRPC uses the one in Envoy's variables, if they name one.
func (s *serving) encryption(ofGRPC *access.TLSFiles) (err error) {
	o := &s.opts
	if ofGRPC != nil {
		ofGRPC.Log = o.Log
		if o.Server.TLS, err = ofGRPC.Config(); err != nil {
			return fmt.Errorf("TLS of gRPC (GRPC_SERVER_TLS_CERT and related variables): %w", err)
		}
	}
	data := access.TLSFiles{Cert: s.cert, Key: s.key, ClientCA: s.clientCA}
	operators := access.TLSFiles{Cert: s.adminCert, Key: s.adminKey, ClientCA: s.adminClientCA}
	const ofData = "HTTP and gRPC, and of RESP (--tls-cert and related flags)"
	for _, port := range []struct {
		into      **tls.Config
		files     access.TLSFiles
		protocols []string
		name      string
	}{
		{&o.Server.TLS, data, []string{"h2"}, ofData}, {&o.TLS, data, []string{"h2", "http/1.1"}, ofData},
		{&o.TLSOfRESP, data, []string{}, ofData}, {&o.AdminTLS, operators, []string{"h2", "http/1.1"}, "the admin address (--admin-tls-cert and related flags)"},
	} {
		if *port.into != nil || port.files.Cert == "" {
			continue
		}
		port.files.Protocols, port.files.Log = port.protocols, o.Log
		if *port.into, err = port.files.Config(); err != nil {
			return fmt.Errorf("TLS of %s: %w", port.name, err)
		}
	}
	return nil
}

func (s *serving) administration(tokens string) (err error) {
	who := &s.opts.AdminAccess
	if who.Tokens, err = adminTokens(s.adminTokenFile, tokens); err != nil {
		return err
	}
	if info, err := os.Stat(s.adminTokenFile); err == nil && info.Mode().Perm()&0o004 != 0 && runtime.GOOS != "windows" {
		s.opts.Log.Warn("every user of this machine can read the tokens: take that right from the others (chmod o-r)", "admin-token-file", s.adminTokenFile)
	}
	who.Certificates = s.adminClientCA != ""
	return who.Check()
}

// adminTokens returns the tokens in a file, one per line, or without a file those in the variable, separated by commas.
func adminTokens(file, variable string) (tokens []string, err error) {
	all := strings.Split(variable, ",")
	if file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("--admin-token-file: %w", err)
		}
		all = strings.Split(string(text), "\n")
	}
	for _, token := range all {
		if token = strings.TrimSpace(token); token != "" {
			tokens = append(tokens, token)
		}
	}
	if file != "" && len(tokens) == 0 {
		return nil, fmt.Errorf("--admin-token-file: %s is empty", file)
	}
	return tokens, nil
}

// keys reads the comma-separated keys in a variable. A fleet changes its key in three rolling restarts: "old,new",
// "new,old" and "new". So no instance gets a token that it cannot open, or a ban whose subject it cannot name.
func (a *app) keys(into *[][]byte, variable string) error {
	text := a.env(variable)
	if text == "" {
		return nil
	}
	for key := range strings.SplitSeq(text, ",") {
		if key = strings.TrimSpace(key); len(key) < leastKey {
			return fmt.Errorf("%s has a key of %d bytes, the one at %d: one that cannot be guessed has at least %d, such as from: openssl rand -base64 32; "+
				"several are separated by commas", variable, len(key), len(*into)+1, leastKey)
		}
		*into = append(*into, []byte(key))
	}
	return nil
}
