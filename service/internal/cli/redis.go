package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"example.com/sash"
	"example.com/sash/failover"
	"example.com/sash/redisstore"
	"example.com/sash/service/internal/cause"
	"example.com/sash/service/internal/doctor"
	"example.com/sash/service/internal/envoy"
	"example.com/sash/service/internal/output"
	"example.com/sash/service/internal/redisclient"
	"example.com/sash/service/internal/wire"
)

// These variables apply to commands without --redis and --home.
const redisVariable, homeVariable = "SASH_REDIS", "SASH_HOME"

// redisFlag adds --redis to a command that otherwise uses the environment.
func (a *app) redisFlag(f *pflag.FlagSet) {
	f.StringVar(&a.redis, "redis", "", "`URL` of Redis, such as redis://user:password@host:6379: see sash help redis (default: $"+redisVariable+")")
}

func (a *app) redisURL(flag string, env *envoy.Settings) string {
	return cmp.Or(flag, a.env(redisVariable), env.Redis)
}

// A remote is a store on Redis and its client.
type remote struct {
	prefix string // of all keys
	store  *redisstore.Store
	client *redisclient.Client // its String has no password
}

// shared returns the store that sash serve uses in this environment, because charges must outlive the command. It does no I/O.
func (a *app) shared() (*remote, error) {
	env, err := envoy.Read(a.env, false)
	if err != nil {
		return nil, err
	}
	url := a.redisURL(a.redis, env)
	if url == "" {
		return nil, errors.New("give --redis or set " + redisVariable + ": without Redis the charges would be in this process, and forgotten when it exits")
	}
	client, err := redisclient.New(url)
	if err != nil {
		return nil, err
	}
	prefix := cmp.Or(env.RedisPrefix, redisstore.DefaultPrefix)
	return &remote{prefix, client.Store(&redisstore.Options{Prefix: prefix}), client}, nil
}

func (r *remote) explain(err error) error {
	return fmt.Errorf("redis at %s: %w", r.client, err)
}

func redisTopic() *cobra.Command {
	return &cobra.Command{
		Use:   "redis",
		Short: "How to write the address of Redis",
		Long: `--redis, or $` + redisVariable + ` without it, is one of

  host:port                                                    one server
  redis://[user:password@]host:port[/db]                       one server, or a replicated primary
  unix://[user:password@]/path/to/socket[?db=1]                one server on this machine
  redis+sentinel://[user:password@]host:port,…/primary[/db]    the primary that Sentinels watch
  redis+cluster://[user:password@]host:port,…                  a Cluster, by some of its nodes

rediss in place of redis is TLS, to Sentinels too. The default port is 6379, and 26379 for
Sentinels. Valkey works like Redis. User and password are those of an ACL; escape what a URL does
not take (/ is %2F, @ is %40). They are never printed.

Parameters follow a question mark:

  tls_ca=FILE                     authorities to trust, in PEM, instead of the system's
  tls_cert=FILE, tls_key=FILE     this client's certificate and key, in PEM
  skip_verify=true                accept any certificate
  sentinel_username, sentinel_password
                                  for Sentinels, which have users of their own
  dial_timeout=1s, read_timeout=1s
                                  to connect, and to wait for an answer before the connection is
                                  given up
  protocol=3, client_name         protocol=2 is for proxies that do not speak RESP3
  pool_size=64                    connections that wait for replicas (sash serve --replicas)

There is one connection to each server, on which concurrent decisions travel together.

A failover is noticed within five seconds. The client tries to reconnect after 50 ms at first and a
second at most, with jitter; calls fail at once meanwhile. It sends a PING on a connection that is
silent for half a second. It never sends a call again that may have been charged.

Keys begin with ` + redisstore.DefaultPrefix + `, or with CACHE_KEY_PREFIX in the environment of Envoy's rate limit
service, whose variables name the Redis too (see docs/envoy.md). All commands read them as sash
serve does.

sash doctor checks a Redis and says what to change.`,
		Example: `  redis://limiter:secret@10.0.0.7:6379
  redis+sentinel://limiter:secret@10.0.0.7,10.0.0.8,10.0.0.9/primary
  rediss+cluster://10.0.0.7,10.0.0.8:7000?tls_ca=/etc/redis/ca.pem`,
	}
}

func (a *app) doctor() *cobra.Command {
	var budget time.Duration
	var strict bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check how a Redis is set up for a limiter; exit 0 fine, 1 not",
		Long: `Check the Redis of a limiter: version, eviction, memory, persistence, replicas, clocks, Sentinels or
Cluster, every script on keys of its own, the latency of decisions, and the user's rights. Each
finding says what was seen and what to do.

  ok          as it should be
  unchecked   the user lacks the right, or there was no answer
  warn        a promise is weaker than it could be
  fail        a promise does not hold, or calls fail

The keys are those of sash serve in the same environment: see sash help redis.

The home of rules with scope: global has the same needs. Check it from each region, with the budget
that sash serve --home-budget has. A lease should last for four trips, each of the p99 that the
latency shows.

The last finding has the ACL line of a user with the rights that a limiter needs and no others. That
user may not read the configuration: run doctor as an administrator once, and as the limiter's user
in CI.

The exit code is 0 if nothing failed, 1 if something did (with --strict: a warning too), and 2 if
Redis does not answer or refuses the user.`,
		Example: `  sash doctor --redis redis://127.0.0.1:6379
  sash doctor --redis rediss://home.example.com --budget 1s
  sash doctor --strict --json      # in CI, with SASH_REDIS set`,
		Args: noAddress,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.runDoctor(cmd.Context(), budget, strict)
		},
	}
	f := cmd.Flags()
	a.redisFlag(f)
	f.DurationVar(&budget, "budget", failover.DefaultBudget, "time that one decision may take, as sash serve --budget has it")
	f.BoolVar(&strict, "strict", false, "exit 1 for warnings too")
	a.jsonFlag(f)
	return cmd
}

func (a *app) runDoctor(ctx context.Context, budget time.Duration, strict bool) error {
	if budget <= 0 {
		return fmt.Errorf("--budget %v: give a time above zero, such as 50ms", budget)
	}
	to, err := a.shared()
	if err != nil {
		return err
	}
	defer to.client.Close()
	findings, err := doctor.Run(ctx, to.client, to.prefix, budget)
	if err != nil {
		return to.explain(cause.Remedy(err))
	}
	count := make(map[doctor.Level]int)
	for _, f := range findings {
		count[f.Level]++
	}
	answer := map[string]any{
		"redis": to.client.String(), "prefix": to.prefix, "findings": findings,
		"ok": count[doctor.OK], "unchecked": count[doctor.Unchecked], "warn": count[doctor.Warn], "fail": count[doctor.Fail],
	}
	err = a.print(answer, func(t *output.Text) {
		t.Say("redis at %s, keys under %s*", to.client, to.prefix)
		for _, f := range findings {
			if f.Node != "" {
				f.Seen = f.Node + ": " + f.Seen
			}
			t.Say("%-9s  %-11s  %s", f.Level, f.Check, f.Seen)
			if f.Do != "" {
				t.Say("%-9s  %-11s  > %s", "", "", f.Do)
			}
		}
		t.Say("%d ok, %d unchecked, %d to think about, %d to repair", count[doctor.OK], count[doctor.Unchecked], count[doctor.Warn], count[doctor.Fail])
	})
	if err == nil && (count[doctor.Fail] > 0 || strict && count[doctor.Warn] > 0) {
		return errFound
	}
	return err
}

func (a *app) inspect() *cobra.Command {
	s := &subject{}
	cmd := &cobra.Command{
		Use:   "inspect KEY",
		Short: "Show what counts for a key on Redis and when it resets, without charging",
		Long: `Show what Redis holds of a key under one algorithm: for each --limit the units that count, when the
next one is free and when all are; how long the key lives, its memory, and the charges of a log.

The command only reads: less than a millisecond of Redis. It needs the
rights that sash doctor prints for a limiter, and +memory|usage for the memory.

The key is used as it is, as in sash peek. Keys that Go programs build with sash.Key, and those of
sash serve, are their parts joined by colons: demo:remote_address:192.0.2.7.`,
		Example: `  sash inspect --limit 9500/24h youtube
  sash inspect --limit 10/1m --limit 60/1h demo:remote_address:192.0.2.7
  sash inspect --algorithm gcra --limit 10/1m --json crm-api`,
		Args: exactly("a KEY"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.runInspect(cmd, s, args[0]) },
	}
	a.register(cmd, s)
	return cmd
}

// An inspection is the JSON of sash inspect.
type inspection struct {
	Key       string       `json:"key"`
	RedisKey  string       `json:"redis_key"`
	Algorithm string       `json:"algorithm"`
	Exists    bool         `json:"exists"`
	At        wire.Instant `json:"at"`
	// TTL is negative for a key that has no expiry.
	TTL    wire.Seconds `json:"ttl"`
	Memory int64        `json:"memory_bytes"`
	// Log is null for an algorithm without a compact log.
	Log    *logState    `json:"log"`
	Limits []limitState `json:"limits"`
}

// logState is the content of a log, including entries that no longer count.
type logState struct {
	Charges int   `json:"charges"`
	Units   int64 `json:"units"`
}

// limitState is the state of one limit.
type limitState struct {
	Name      string       `json:"name"`
	Used      int64        `json:"used"`
	Remaining int64        `json:"remaining"`
	NextFree  wire.Seconds `json:"next_free_after"`
	AllFree   wire.Seconds `json:"all_free_after"`
}

func (a *app) runInspect(cmd *cobra.Command, s *subject, key string) error {
	given := len(s.limits) > 0
	if !given {
		s.limits = []string{"1/1s"} // a limiter needs one; what Redis holds does not depend on it
	}
	if s.resolution == 0 && s.algorithm == sash.SlidingBuckets {
		return errors.New("--resolution is missing: sliding-buckets of another resolution are another key")
	}
	if key == "" {
		return fmt.Errorf("%w: it is empty", sash.ErrInvalidKey)
	}
	full := s.full(key)
	return a.on(cmd, s, func(ctx context.Context, limiter *sash.Limiter, to *remote) error {
		policy := limiter.Policy()
		in := inspection{Key: full, RedisKey: to.store.Key(full, policy), Algorithm: policy.Algorithm.String(), Limits: []limitState{}}
		state, err := to.store.Inspect(ctx, full, policy)
		if err == nil && state != nil {
			err = in.fill(ctx, state, limiter, key, given)
		}
		if err != nil {
			return to.explain(cause.Remedy(err))
		}
		return a.print(in, func(t *output.Text) { in.text(t, to.client.String()) })
	})
}

// fill copies the state of a key into the JSON form. If limits were given, it also reads their state.
func (in *inspection) fill(ctx context.Context, state *redisstore.State, limiter *sash.Limiter, key string, given bool) error {
	in.Exists, in.At, in.TTL, in.Memory = true, wire.Instant(state.At), wire.Seconds(state.TTL), state.Bytes
	policy := limiter.Policy()
	if policy.Algorithm == sash.SlidingLog || policy.Algorithm == sash.SlidingBuckets {
		in.Log = &logState{Charges: len(state.Entries)}
		for _, e := range state.Entries {
			in.Log.Units += e.Units
		}
	}
	if !given {
		return nil
	}
	res, err := limiter.Peek(ctx, key)
	if err != nil {
		return err
	}
	for i, l := range res.Limits() {
		used := l.Limit.Units - l.Remaining
		if l.Remaining == 0 { // after a limit was lowered, its window may hold more units
			cut, _ := policy.Limits[i].Cut(state.At.UnixMicro())
			inside := int64(0)
			for _, e := range state.Entries {
				if e.At.UnixMicro() > cut {
					inside += e.Units
				}
			}
			used = max(used, inside)
		}
		in.Limits = append(in.Limits, limitState{
			Name: cmp.Or(l.Limit.Name, l.Limit.String()), Used: used, Remaining: l.Remaining,
			NextFree: wire.Seconds(l.ReleaseAfter), AllFree: wire.Seconds(l.ResetAfter),
		})
	}
	return nil
}

func (in *inspection) text(t *output.Text, address string) {
	if !in.Exists {
		t.Say("%s: there is no such key, so nothing is charged under %s; other algorithms have other keys", in.RedisKey, in.Algorithm)
		return
	}
	t.Say("%s  (%s)", output.Printable(in.RedisKey), in.Algorithm)
	t.Say("at       %s, by the clock of redis at %s", instantText(time.Time(in.At)), address)
	if in.TTL < 0 {
		t.Say("expires  never: Sash did not write it")
	} else {
		t.Say("expires  in %v unless it is charged again", time.Duration(in.TTL))
	}
	if in.Memory > 0 {
		t.Say("memory   %s", output.Bytes(in.Memory))
	}
	if in.Log != nil {
		t.Say("log      %s of %s", output.Count(int64(in.Log.Charges), "charge"), units(in.Log.Units))
	}
	for _, l := range in.Limits {
		free := ""
		if l.AllFree > 0 {
			free = fmt.Sprintf("; the next unit is free in %v, all in %v", time.Duration(l.NextFree), time.Duration(l.AllFree))
		}
		t.Say("%s: %d used, %d left%s", l.Name, l.Used, l.Remaining, free)
	}
}
