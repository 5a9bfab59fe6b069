package cli

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"example.com/sash/failover"
	"example.com/sash/service/internal/envoyenv"
)

// serving is the flags of sash serve.
type serving struct {
	config, redis, level    string
	snapshot                string
	addr, grpcAddr, admin   string
	json, merge, chargeEach bool
	budget, drainDelay      time.Duration
	instances, replicas     int
	logRefusals, showKeys   bool
	administration
}

func (a *app) serve() *cobra.Command {
	s := &serving{}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Answer decisions over HTTP and Envoy's gRPC protocol",
		Long: `Answer decisions over HTTP and gRPC, by a configuration (see sash config) and on a store: this process's
memory, or a Redis that any number of instances share.

  POST /v1/allow   {"domain":"demo","entries":[{"key":"remote_address","value":"192.0.2.7"}],"cost":1}

answers 200 when the call is allowed and 429, with Retry-After, when it is refused. Both have the same
body: allowed, remaining, retry_after and reset_after (seconds), refused_by (the limit's name, ban, or null),
limits (name, units, window in seconds, remaining), at (the store's clock) and source (see below). Without a cost it is the
matching descriptor's, which is 1 unless configured. A request that matches no limit is allowed with
remaining null and limits []. Other answers are {"error":"…"}: 400 a wrong request, 404 an unknown
domain, 413 a body over 64 KiB, 415 not JSON, 422 a cost that could never fit, and 503 where Redis does not
answer and the rule is closed.

  GET /v1/forward-auth?domain=demo&descriptor=remote_address

answers nginx, Caddy, Traefik and HAProxy, which ask it before they let a request through: 200, or 429 with
Retry-After and RateLimit fields (deny=403 for nginx). The headers that the proxy sends say who the client is,
so that the address must be one that only the proxy reaches: see docs/proxies.md.

  GET /healthz     200 {"status":"ok","store":"up","instances":2}, or "degraded" and a cause

It is 200 also while Redis is down, because ending or avoiding an instance would not bring Redis back. Use it
for liveness and readiness.

  POST /v1/peek      the same body and answer, and nothing is charged
  POST /v1/explain   the same body: which rule matches it and why, and what is used of its limits
  POST /v1/reserve   as allow, for a cost that is an estimate; the answer has a token
  POST /v1/settle    {"token":"…","used":317} corrects the charge, once; /v1/cancel {"token":"…"} gives it back
  GET /openapi.yaml  describes all of it

An "id" beside domain and entries of allow and reserve names the request: sent again within five minutes, it is
charged once; with another cost it is another request. Instances settle each other's reservations when they have
one secret in ` + tokenKeyVariable + `, of 32 bytes or more; without it each settles its own.

On the gRPC address it answers envoy.service.ratelimit.v3.RateLimitService in place of Envoy's rate limit
service, whose configuration files and environment variables it takes: see docs/envoy.md. POST /json is the
same in JSON, and GET /healthcheck is for load balancers.

The admin address has /dashboard, /rlconfig, /stats, /metrics and /debug/pprof/, and as JSON below /admin/v1/ the configuration
and the state of the store. With --admin-token-file, SASH_ADMIN_TOKEN or --admin-client-ca it also tells the busiest
subjects and the windows of one, resets a subject, bans it or gives it other limits for a while, on all instances
that share a Redis: see docs/admin.md.

Traces and metrics go to the collector that OTEL_EXPORTER_OTLP_ENDPOINT names, and counters to statsd with USE_STATSD
and STATSD_HOST; docs/metrics.md says what is told.

The configuration is read again when its files change. One that is wrong is logged, counted and shown on
/rlconfig, and the last good one stays in use.

Redis need not be there at the start, or stay. A decision that it does not make within --budget is made by the
rule's on_unavailable: closed is 503, the default; open lets the call through; local decides over this
instance's share, the units of each limit divided by the number of instances. That is counted by heart-beats
on Redis, or given by --instances; while it is not known, local admits nothing. Without a restart Redis decides
again when it answers, and is told what was admitted locally. Answers say their source: store; cache, a
refusal of Redis that still holds; or local or policy, with the cause: budget (no answer in time), down (it
failed before and is not asked for now), busy, misconfigured or error. Where one node of a Cluster is away the
others decide as before, and /healthz says degraded.

Without Redis a restart forgets what was charged, unless --snapshot names a file. After a crash what the last ten
seconds had charged is forgotten. Bans and overrides are not in it.

SIGTERM and interrupt end it. For --drain-delay health is down (/healthz 503, /healthcheck 500, NOT_SERVING over gRPC) and
requests are answered as before, so that load balancers stop sending first; then those in flight have ten seconds. A second
signal ends it at once. Give it behind load balancers, on Kubernetes too: 5s, or what they take to notice. Anyone who
reaches the address can ask: the service has no authentication of its own.`,
		Example: `  sash serve
  sash serve --config limits.yaml --redis redis://127.0.0.1:6379 --addr 127.0.0.1:8080`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			settings, err := envoyenv.Read(a.env)
			if err != nil {
				return err
			}
			s.deployed(settings, cmd.Flags().Changed)
			return a.runServe(cmd.Context(), s, settings)
		},
	}
	f := cmd.Flags()
	f.StringVar(&s.config, "config", "", "configuration `file`, or a directory of .yaml files (default: the built-in example, see sash config example)")
	f.BoolVar(&s.merge, "merge-domains", false, "let several files configure one domain")
	f.StringVar(&s.redis, "redis", "", redisUsage+" (default: the environment's "+redisVariable+", or else this process's memory)")
	f.StringVar(&s.snapshot, "snapshot", "", "without Redis: a `file` that what was charged is written to every ten seconds and at the end, and read from at the start")
	f.StringVar(&s.addr, "addr", ":8080", "`address` of HTTP; port 0 takes a free one")
	f.StringVar(&s.grpcAddr, "grpc-addr", ":8081", "`address` of gRPC, or unix:///path; empty is none")
	f.StringVar(&s.admin, "admin-addr", "127.0.0.1:6070", "`address` of counters and the configuration in use; empty is none")
	s.flags(f)
	f.BoolVar(&s.chargeEach, "charge-each", false, "charge each descriptor that has room, although another refuses the request")
	f.DurationVar(&s.budget, "budget", failover.DefaultBudget, "the time that Redis gets for one decision, before on_unavailable is the answer")
	f.DurationVar(&s.drainDelay, "drain-delay", 0, "how long to answer after SIGTERM, with health down, before connections are refused")
	f.IntVar(&s.instances, "instances", 0, "how many instances share the limits, for on_unavailable: local (default: counted on Redis)")
	f.IntVar(&s.replicas, "replicas", 0, "how many replicas have to confirm what is admitted, within half of the budget; fewer in time is on_unavailable")
	f.StringVar(&s.level, "log-level", "info", "what to log to standard error: debug, info, warn or error")
	f.BoolVar(&s.logRefusals, "log-refusals", false, "log refusals with the limit that refused: of each rule the first in each second, at level info")
	f.BoolVar(&s.showKeys, "show-keys", false, "have whom a request was charged to, which is values of the request, in the logs of refusals and candidates, and in traces")
	f.BoolVar(&s.json, "json", false, "say where it listens in JSON, and log in JSON")
	return cmd
}

func (a *app) logger(s *serving, asJSON bool) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(s.level)); err != nil {
		return nil, fmt.Errorf("--log-level %q: it is debug, info, warn or error", s.level)
	}
	opts := &slog.HandlerOptions{Level: level}
	if s.json || asJSON {
		return slog.New(slog.NewJSONHandler(a.err, opts)), nil
	}
	return slog.New(slog.NewTextHandler(a.err, opts)), nil
}
