package cli

import (
	"time"

	"github.com/spf13/cobra"

	"example.com/sash/failover"
	"example.com/sash/memstore"
	"example.com/sash/service/internal/serve"
)

// serving is the flags of sash serve: those that are options as they are, and the others.
type serving struct {
	opts  serve.Options
	level string
	json  bool

	cert, key, clientCA                                string
	adminTokenFile, adminCert, adminKey, adminClientCA string
}

// asRatelimit is the command in the image of Envoy's rate limit service. In its place it runs sash serve.
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
units. Without Redis, --memory-max-subjects bounds the memory, and a restart forgets the charges.

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
	f.IntVar(&o.Memory.MaxKeys, "memory-max-subjects", memstore.DefaultMaxKeys, "most subjects in memory, about 350 bytes each; a new one replaces one that has used little")
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
