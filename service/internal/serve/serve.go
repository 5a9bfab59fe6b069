// Package serve assembles sash serve: a configuration, a store, the engine that decides, and the ports that answer.
package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/metrics"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/redisstore"
	"example.com/sash/service/internal/access"
	"example.com/sash/service/internal/admin"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/degrade"
	"example.com/sash/service/internal/exceptions"
	"example.com/sash/service/internal/redisclient"
	"example.com/sash/service/internal/stats"
	"example.com/sash/service/internal/telemetry"
	"example.com/sash/service/internal/wire"
)

// Run serves until ctx ends and calls are answered. An error says why it could not start, or which port failed.
func Run(ctx context.Context, opts Options) error {
	ctx, stop := context.WithCancel(ctx) // stops following the configuration when Run ends
	defer stop()
	defer spareCollector()()
	s, known, err := prepare(opts)
	if err != nil {
		return err
	}
	defer s.store.close()
	if err := s.store.ping(ctx); err != nil && ctx.Err() == nil {
		s.Log.Error("Redis does not answer: until it does, calls are answered by on_unavailable", "error", err)
	}
	if err := s.openGate(); err != nil {
		return err
	}
	s.tokens = wire.NewTokens(s.TokenKeys...)
	if len(s.TokenKeys) == 0 && s.store.client != nil {
		s.Log.Info("only this instance can settle its reservations: give all instances one key in SASH_TOKEN_KEY")
	}
	s.exceptions = exceptions.New(s.decider, s.store.client, s.RedisPrefix, s.Log)
	s.exceptions.Refresh(ctx) // bans hold from the first answer on
	if err := s.observe(ctx); err != nil {
		return err
	}
	defer s.telemetry.Stop()
	if err := s.follow(ctx, known); err != nil {
		return err
	}
	ports, err := s.listen(ctx)
	if err != nil {
		return err
	}
	open := s.opened(ports)
	if s.Listening != nil {
		err = s.Listening(Listening{
			ports.addr("http"), ports.addr("grpc"), ports.addr("resp"), ports.addr("admin"), s.store.where, s.origin(), s.decider.Config(), open,
		})
		if err != nil {
			ports.close()
			return err
		}
	}
	return s.run(ctx, ports)
}

// prepare makes an instance with the first configuration, and connects to nothing. It also returns the fingerprint of
// its files. The caller closes the store, unless there is an error.
func prepare(opts Options) (s *instance, known config.Fingerprint, err error) {
	opts.Budget = cmp.Or(opts.Budget, failover.DefaultBudget)
	opts.HomeBudget = cmp.Or(opts.HomeBudget, DefaultHomeBudget)
	opts.Log = cmp.Or(opts.Log, slog.Default())
	s = &instance{Options: opts, loading: &admin.Loading{}}
	cfg, known, err := s.loadFirst()
	if err != nil {
		return nil, known, err
	}
	s.stats = stats.New(&stats.Options{
		NearLimitRatio: s.NearLimit,
		Milliseconds:   s.Milliseconds,
		Subjects:       s.AdminAccess.Possible(), // otherwise nobody may read subjects
	})
	if s.store, err = s.openStore(); err != nil {
		return nil, known, err
	}
	s.Log = s.Log.With("store", s.store.where)
	if s.decider, err = decide.New(cfg, s.store.Place); err == nil {
		err = s.nameSecrets()
	}
	if err != nil {
		s.store.close()
	}
	return s, known, err
}

// Check returns the error with which Run would fail to start with its first configuration. It connects to nothing.
func Check(opts Options) error {
	s, _, err := prepare(opts)
	if err == nil {
		s.store.close()
	}
	return err
}

// An instance holds what Run assembles, in the order in which Run makes it.
type instance struct {
	Options
	loading    *admin.Loading
	stats      *stats.Registry
	store      *store
	decider    *decide.Decider
	gate       *access.Gate
	guard      *admin.Guard
	exceptions *exceptions.Book
	tokens     *wire.Tokens
	telemetry  *telemetry.Telemetry
}

// openGate reads who may use the HTTP, gRPC, RESP and admin addresses.
func (s *instance) openGate() (err error) {
	s.guard = admin.NewGuard(s.AdminAccess, s.Log)
	anonymous := access.Decide      // without a file of callers
	if s.Protocol.Counting != nil { // Envoy's service lets everyone do everything
		anonymous = access.All
	}
	s.gate, err = access.Open(s.AccessFile, &access.Options{
		Refused: s.stats.Denied, Log: s.Log, Anonymous: anonymous,
	})
	envoys := func(r *config.Rule) bool { return r.Envoys && !r.Unlimited }
	replaces := s.Management != nil || s.Config.Path != "" && slices.ContainsFunc(s.decider.Config().Rules(), envoys)
	if replaces && s.GRPC != "" && s.AccessFile == "" && anonymous == access.Decide {
		s.Log.Warn("requests that set a limit or give units back (limit, is_negative_hits) are PERMISSION_DENIED, and Envoy lets them through " +
			"without failure_mode_deny: rights in the file of --access allow them, or SASH_ENVOY_COMPATIBLE=true")
	}
	return err
}

func (s *instance) observe(ctx context.Context) (err error) {
	s.stats.Use(s.decider.Config())
	s.decider.Observe(s.stats.Observe)
	s.stats.Degraded(func() bool { return s.health().Status == "degraded" })
	if s.Protocol.Counting != nil {
		s.stats.Remember(s.Protocol.Counting.Over)
	}
	switch {
	case s.decider.Config().Loaded():
		s.stats.Service.ConfigLoaded.Add(1)
	case s.Management == nil:
		s.stats.Service.ConfigErrors.Add(1)
	}
	s.Telemetry.Log = s.Log
	s.telemetry, err = telemetry.Start(ctx, s.decider, s.stats, s.Telemetry)
	return err
}

// run answers on the ports until ctx ends and the service has drained, or until a port fails.
func (s *instance) run(ctx context.Context, ports ports) error {
	late, end := s.drain(ctx)
	defer end()
	group, late := errgroup.WithContext(late)
	for _, run := range s.runners(ctx.Done(), ports) {
		group.Go(func() error { return run(late) })
	}
	return group.Wait()
}

// ErrInterrupted is the cause if somebody at a terminal ended the context. Run then ends without DrainDelay.
var ErrInterrupted = errors.New("interrupted")

// drain returns a context that ends DrainDelay after ctx. In between, health is down and requests are answered,
// because load balancers send requests until they see that. The second result releases what drain holds.
func (s *instance) drain(ctx context.Context) (context.Context, context.CancelFunc) {
	late, end := context.WithCancel(context.WithoutCancel(ctx))
	forget := context.AfterFunc(ctx, func() {
		defer end()
		defer s.Log.Info("stopping: calls in flight may finish")
		if s.DrainDelay == 0 || errors.Is(context.Cause(ctx), ErrInterrupted) {
			return
		}
		s.Log.Info("stopping: health is down, and requests are answered until load balancers have seen it (--drain-delay)", "for", s.DrainDelay)
		timer := time.NewTimer(s.DrainDelay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-late.Done():
		}
	})
	return late, func() { forget(); end() }
}

// garbage is the least garbage for which the collector runs. Otherwise, in a service with few subjects, it would run
// for every 4 MB: a hundred times a second under load, for a sixth of the processor time.
const garbage = 32 << 20

// spareCollector makes the collector wait for this much garbage until end is called, unless GOGC is set or GOMEMLIMIT is low.
func spareCollector() (end func()) {
	chosen := []metrics.Sample{{Name: "/gc/gogc:percent"}, {Name: "/gc/gomemlimit:bytes"}}
	metrics.Read(chosen)
	if chosen[0].Value.Uint64() != 100 || chosen[1].Value.Uint64() < 16*garbage {
		return func() {}
	}
	unused := make([]byte, garbage) // counts as in use, but is never written, so the system gives it no memory
	return func() { runtime.KeepAlive(unused) }
}

// A backend decides, and reports its health: a degrade.Guard or a degrade.Memory.
type backend interface {
	Place(config.Place) (driver.Store, error)
	Run(context.Context) error // as long as the service
	Health() degrade.Health
	Report() degrade.Report
}

type store struct {
	backend
	where   string                      // for people; without the password
	closing []func()                    // what closes the store, the last first
	client  *redisclient.Client         // for exceptions; nil in memory
	ping    func(context.Context) error // reports whether the store answers
}

func (s *store) close() {
	for _, end := range slices.Backward(s.closing) {
		end()
	}
}

func (s *instance) openStore() (*store, error) {
	switch {
	case s.Redis != "":
		return s.openRedis()
	case s.Home != "":
		return nil, errors.New("--home is for rules of all regions, whose leases are in this region's Redis: give --redis too")
	}
	return &store{
		backend: degrade.NewMemory(s.Memory, s.Log), ping: func(context.Context) error { return nil },
		where: "this process's memory: forgotten when it ends, and not shared with other instances (--redis shares it)",
	}, nil
}

// openRedis opens the store on Redis, and connects later. While Redis is down, rules are answered by their failure modes.
func (s *instance) openRedis() (_ *store, err error) {
	out := &store{}
	defer func() {
		if err != nil {
			out.close()
		}
	}()
	client, err := redisclient.New(s.Redis)
	if err != nil {
		return nil, err
	}
	out.closing = append(out.closing, client.Close)
	if out.client, err = redisclient.New(s.Redis); err != nil { // calls that decide nothing must not delay calls that do
		return nil, err
	}
	out.closing = append(out.closing, out.client.Close)
	if err := client.Hold(s.Budget); err != nil {
		return nil, fmt.Errorf("--budget: %w", err)
	}
	out.where = "redis at " + client.String()
	s.stats.Redis(client.Connections)
	log := s.Log.With("store", out.where)
	home, err := s.openHome(out)
	if err != nil {
		return nil, err
	}
	detached := client.Detached(&redisstore.Options{Prefix: s.RedisPrefix, Replicas: s.Replicas, ReplicaTimeout: s.Budget / 2})
	guard, err := degrade.New(detached, degrade.Options{
		Home:   home,
		Budget: s.Budget, OpenPerSecond: s.OpenPerSecond, Local: s.Memory, Instances: s.Instances, Cluster: client.Cluster(),
		Address: client.String(), Uncounted: s.stats.Uncounted, Failed: s.stats.StoreFailed, Log: log,
	})
	if err != nil {
		return nil, err
	}
	out.closing = append(out.closing, guard.Close)
	out.ping = func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if err := client.Ping(ctx); err != nil {
			return fmt.Errorf("redis at %s: %w", client, err)
		}
		return nil
	}
	out.backend = guard
	return out, nil
}

// openHome returns the Redis that all regions share, or nil for none. It closes with a store. It connects later, as openRedis does.
func (s *instance) openHome(with *store) (*degrade.Home, error) {
	if s.Home == "" {
		return nil, nil
	}
	client, err := redisclient.Far(s.Home)
	if err != nil {
		return nil, fmt.Errorf("--home: %w", err)
	}
	with.closing = append(with.closing, client.Close)
	if err := client.Hold(s.HomeBudget); err != nil {
		return nil, fmt.Errorf("--home-budget: %w", err)
	}
	opts := &redisstore.Options{Prefix: s.RedisPrefix, Replicas: s.Replicas, ReplicaTimeout: s.HomeBudget / 2}
	watch, err := degrade.NewHome(client.String(), s.HomeBudget, client.Store(opts), s.Log)
	if err != nil {
		return nil, fmt.Errorf("--home: %w", err)
	}
	watch.Store = client.Observed(opts, watch.Note)
	return watch, nil
}

// patience bounds one decision over HTTP and RESP, with the failure mode's answer and the wait for its turn. It is longer than the
// budget, so that a call to a store that does not answer still gets an answer from its failure mode.
func (s *instance) patience() time.Duration {
	longest := max(time.Second, 2*s.Budget)
	if s.Home != "" {
		longest = max(longest, 2*(s.Budget+s.HomeBudget))
	}
	return longest + time.Second
}
