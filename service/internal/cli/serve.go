package cli

import (
	"time"

	"github.com/spf13/cobra"

	"example.com/sash/failover"
	"example.com/sash/memstore"
	"example.com/sash/service/internal/rls"
	"example.com/sash/service/internal/serve"
)

// serving is the flags of sash serve: those that are options as they are, and the others.
type serving struct {
	opts            serve.Options
	level           string
	json            bool
	algorithm       string
	maxRulesRemoved int
	homes           []string

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
		Long: `Answer decisions over HTTP and gRPC. A configuration has the limits (see sash config), and a store
has the charges: this process's memory, or a Redis that any number of instances share.

  POST /v1/allow   {"domain":"demo","entries":[{"key":"remote_address","value":"192.0.2.7"}],
                    "cost":1}

The answer is 200 if the call is allowed, and 429 with Retry-After if it is refused. Both have the
same body: allowed, remaining, retry_after and reset_after (seconds), refused_by (the limit's name,
ban, or null), limits (name, units, window in seconds, remaining), at (the store's clock) and source
(see below). A request without a cost asks for the matching descriptor's cost, which is 1 unless
configured. A request that matches no limit is allowed, with remaining null and limits []. All other
answers are {"error":"…"}: 400 for a wrong request, 404 for an unknown domain, 413 for a body over
64 KiB, 415 if it is not JSON, 422 for a cost that can never fit, and 503 if Redis does not answer
and the rule is closed.

  GET /v1/forward-auth?domain=demo&descriptor=remote_address

nginx, Caddy, Traefik and HAProxy send this request before they let another one through. The answer
is 200, or 429 with Retry-After and RateLimit fields (deny=403 for nginx). The proxy's headers say
who the client is, so only the proxy may reach this address: see docs/proxies.md.

  GET /healthz     200 {"status":"ok","store":"up","instances":2}, or "degraded" and a cause

It is ok only while decisions can be charged, also if nobody calls, and there is a configuration.
The status stays 200 while Redis is down, because to restart or avoid an instance does not bring
Redis back. Use it for readiness. For liveness ask the admin address for it: one caller can keep all
connections of this one busy.

  POST /v1/peek      the same body and answer; nothing is charged
  POST /v1/reserve   as allow, for a cost that is an estimate; the answer has a token
  POST /v1/settle    {"token":"…","used":317} corrects the charge, once
  POST /v1/cancel    {"token":"…"} gives the charge back
  GET /openapi.yaml  describes all endpoints

An "id" beside domain and entries of allow and reserve names the request: sent again within five
minutes, it is charged once; with another cost it is another request. Instances settle each other's
reservations if they share one secret of at least 32 bytes in ` + tokenKeyVariable + `. Otherwise each settles
its own. To change the secret, restart them with "old,new", then with "new,old", then with "new".
The first seals, and all open.

Values of entries with secret: true in the configuration, and without it those of authorization,
cookie, x-api-key and similar keys, are kept and shown as their HMAC only. ` + secretKeysVariable + ` has
the key for it, of at least 32 bytes and the same on all instances; with Redis it must be there.
Several are separated by commas, and the first counts: see docs/security.md.

The gRPC address serves envoy.service.ratelimit.v3.RateLimitService. It replaces Envoy's rate limit
service, and reads its configuration files and environment variables, which take precedence over
` + configVariable + ` and ` + formatVariable + `, as flags do: see docs/envoy.md. POST /json is the same in JSON, and
GET /healthcheck is for load balancers. Under the name ratelimit the program is sash serve with that
service's variables. With SASH_ENVOY_COMPATIBLE=true it also counts as that service does.

--resp-addr opens a port for clients of Redis in any language. CL.THROTTLE is that of the module
redis-cell, by a window that slides, and SASH.ALLOW decides by a rule or by limits that the command
brings along: see docs/resp.md.

The admin address has /dashboard, /rlconfig, /stats and /metrics, and below /admin/v1/, as JSON, the
configuration and the state of the store. With --admin-token-file, SASH_ADMIN_TOKEN or
--admin-client-ca it also lists the busiest subjects, shows a subject's windows, resets a subject,
bans it, or gives it other limits for a while, on all instances that share a Redis, and has
profiles at /debug/pprof/: see docs/admin.md.

OTEL_EXPORTER_OTLP_ENDPOINT names a collector for traces and metrics. USE_STATSD and STATSD_HOST
send counters to statsd. docs/metrics.md lists them.

The configuration is loaded again when its files change. A wrong one is logged, counted and shown on
/rlconfig, and the last valid one stays in use.

Redis may be away, at the start too. If it does not decide within --budget, the rule's
on_unavailable does: closed answers 503 and is the default; open lets the call through; local
decides by this instance's share, which is each limit's units divided by the number of instances.
Heart-beats on Redis count the instances. --instances is the least number, and holds until Redis
has counted: without it, local admits nothing on an instance that starts while Redis is away. When
Redis answers again it decides again, and receives what was admitted locally. Each answer has its
source: store; cache, for a refusal of Redis that still holds; lease or own, below; or local or
policy, with the cause: budget (no answer in time), down (it failed before and is not called for
now), busy, or why Redis failed, such as refused, tls, auth or memory. If one node of a Cluster is
away the others decide as before, and /healthz reports degraded.

A rule with scope: global has one limit over all regions. The home, a Redis that all regions share,
keeps its charges, and this region leases units from it: --redis holds them, and most calls are
decided there. A call for which there is no leased unit takes a trip to the home, within
--home-budget. While the home is away a region goes on with the units that it holds, and then by
on_unavailable; /healthz says degraded and "home":"down". There local is the region's own share, a
tenth of each limit or its own_share, beside regions, their number. With --home eu=URL --home us=URL
each rule names its home, which most of its callers are near (home: eu); all regions give the same
homes. While the region's Redis is away, the home decides each call. All regions have the same
configuration. lease: 2s in a rule is how long before a call its unit may be charged. No window
has more than the limit; callers that never stop get the limit per window and lease. Without
scope: global, lease spares Redis most calls of a hot subject: each instance leases units for
itself.

Without Redis all subjects are in this process's memory, up to --memory-max-subjects. When that is
full, a new subject replaces one that has used little, and never one that is refused. Where all are
refused, and always with --memory-no-eviction, on_unavailable answers for a new subject, with the
cause full. /healthz is degraded then.

Without Redis a restart forgets what was charged, unless --snapshot names a file. A crash forgets
the charges of the last ten seconds. A snapshot has no bans and overrides.

SIGTERM or an interrupt (Ctrl-C) ends the service. After SIGTERM health is down (/healthz 503,
/healthcheck 500, NOT_SERVING over gRPC) and requests are answered as before for --drain-delay, so
that load balancers stop sending first. Then requests in flight have ten seconds. A client that
keeps its connection learns with its next answer that the connection ends, or is disconnected after
two seconds without a request. What was admitted locally is written to Redis within five seconds
more, or logged as lost. A second signal ends the service at once. Set --drain-delay to more than
the time that your load balancers take to notice, or to 0 without them.

Everyone who reaches the HTTP, gRPC and RESP addresses may request decisions, and nobody may give
units back (is_negative_hits) or set its own limit (also CL.THROTTLE). --access names a file with
other rights, for callers and for clients with tokens (see sash token) or certificates;
docs/security.md describes it:

  clients:
    - {name: billing, tokens: [SHA-256], allow: [decide], domains: [shop]}
  anonymous: {allow: [decide, refund, override]}`,
		Example: `  sash serve
  sash serve --config limits.yaml --redis redis://127.0.0.1:6379 --addr 127.0.0.1:8080`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
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
	f.StringVar(&o.Config.Path, "config", "", "configuration `file`, or a directory: every file in it and below is read (default: $"+configVariable+", or the built-in example, see sash config example)")
	f.BoolVar(&o.Config.Merge, "merge-domains", false, mergeUsage)
	f.IntVar(&s.maxRulesRemoved, "max-rules-removed", -1, "most rules that a changed configuration may remove while the service runs: if it removes more, such as a file that was cut off, the last good one stays (default: any number)")
	f.StringVar(&o.Redis, "redis", "", redisUsage+" (default: $"+redisVariable+", or this process's memory)")
	homesFlag(f, &s.homes, ", for rules with scope: global; --redis is then that of this region")
	f.DurationVar(&o.HomeBudget, "home-budget", serve.DefaultHomeBudget, "time for the home to make one decision, more than a trip there; then on_unavailable answers")
	f.StringVar(&o.Snapshot, "snapshot", "", "without Redis: a `file` to write the charges to, every ten seconds and at the end, and to restore them from at the start")
	f.IntVar(&o.Memory.MaxKeys, "memory-max-subjects", memstore.DefaultMaxKeys, "most subjects in this process's memory, about 350 bytes each and more for long logs; without --redis all of them, otherwise those of on_unavailable: local")
	f.BoolVar(&o.Memory.NoEviction, "memory-no-eviction", false, "when that many are held, answer new subjects by on_unavailable; by default they replace those that have used least and are not refused")
	f.StringVar(&o.HTTP, "addr", ":8080", "`address` of HTTP; port 0 takes a free port")
	f.StringVar(&o.GRPC, "grpc-addr", ":8081", "`address` of gRPC, or unix:///path; empty for none")
	f.StringVar(&o.RESP, "resp-addr", "", "`address` of RESP, the protocol of Redis, or unix:///path; empty for none (see docs/resp.md)")
	f.StringVar(&o.AccessFile, "access", "", "`file` of the clients of the HTTP, gRPC and RESP addresses, their tokens and rights; read again when it changes (default: everyone may decide, nobody may give units back or set its own limit)")
	f.StringVar(&s.cert, "tls-cert", "", "certificate `file` that makes the HTTP address HTTPS and encrypts gRPC and RESP; read again when it changes")
	f.StringVar(&s.key, "tls-key", "", "key `file` of that certificate")
	f.StringVar(&s.clientCA, "tls-client-ca", "", "`file` of authorities: only clients with their certificates may use the HTTP, gRPC and RESP addresses")
	f.StringVar(&o.Admin, "admin-addr", "127.0.0.1:6070", "`address` of the dashboard, counters and the configuration in use; empty for none")
	f.StringVar(&s.adminTokenFile, "admin-token-file", "", "`file` with the tokens, one a line, for changes and subjects at the admin address (default: $"+adminTokenVariable+"; separated by commas; without either, both are off)")
	f.StringVar(&s.adminCert, "admin-tls-cert", "", "certificate `file` that makes the admin address HTTPS")
	f.StringVar(&s.adminKey, "admin-tls-key", "", "key `file` of that certificate")
	f.StringVar(&s.adminClientCA, "admin-client-ca", "", "`file` of authorities: only clients with their certificates may use the admin address")
	f.StringVar(&s.algorithm, "algorithm", "sliding-log", "`algorithm` of rules that name none, such as fixed-window (also SASH_ALGORITHM)")
	f.IntVar(&o.Protocol.MaxDescriptors, "max-descriptors", rls.DefaultMaxDescriptors, "most descriptors in a request of Envoy's protocol, whose message may have 1 KiB for each: 4 MiB by default")
	f.DurationVar(&o.Budget, "budget", failover.DefaultBudget, "time for Redis to make one decision; then on_unavailable answers")
	f.Int64Var(&o.OpenPerSecond, "open-per-second", 0, "most units that this instance lets through in a second by on_unavailable: open; beyond it closed answers (default: no ceiling)")
	f.DurationVar(&o.Trip.Blip, "trip-after", failover.DefaultBlip, "how long Redis may fail until it is down: on_unavailable then answers without asking it; longer than its stalls, such as those of a fork")
	f.IntVar(&o.Trip.Calls, "trip-calls", failover.DefaultTripCalls, "least number of calls in a second of which a share takes Redis down; without a single answer five failures do")
	f.Float64Var(&o.Trip.Share, "trip-share", failover.DefaultTripShare, "least share of failed calls that takes Redis down, up to 1")
	f.DurationVar(&o.MaxWait, "max-wait", time.Hour, "longest wait_up_to of a request, up to 24h; 0 lets none wait")
	f.IntVar(&o.MaxConnections, "max-connections", serve.DefaultMaxConnections, "most connections of HTTP, of gRPC and of RESP, each: beyond it a new one takes the place of one that is silent, or waits; lower where the process may have few descriptors")
	f.DurationVar(&o.DrainDelay, "drain-delay", serve.DefaultDrainDelay, "how long to answer after SIGTERM, with health down, before connections are refused; an interrupt (Ctrl-C) does not wait")
	f.IntVar(&o.Instances, "instances", 0, "least number of instances that share the limits, for on_unavailable: local; used until Redis has counted them")
	f.IntVar(&o.Replicas, "replicas", 0, "number of replicas that must confirm an admission within half of the budget; otherwise on_unavailable answers")
	f.StringVar(&s.level, "log-level", "info", "lowest level to log to standard error: debug, info, warn or error")
	f.BoolVar(&o.Telemetry.Refusals, "log-refusals", false, "log refusals with the limit that refused: the first of each rule in each second, at level info")
	f.BoolVar(&o.Telemetry.Keys, "show-keys", false, "show subjects, which are values of requests, in traces and in the logs of refusals and candidates")
	f.BoolVar(&s.json, "json", false, "print the addresses as JSON, and log in JSON (default: if $"+formatVariable+" is json)")
}
