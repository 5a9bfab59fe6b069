package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/sash"
	"example.com/sash/goredisstore"
	"example.com/sash/memstore"
	"example.com/sash/redisstore"
	"example.com/sash/service/internal/admin"
	"example.com/sash/service/internal/degrade"
	"example.com/sash/service/internal/envoyenv"
	"example.com/sash/service/internal/httpapi"
	"example.com/sash/service/internal/redisclient"
)

// A backend is what decides for sash serve.
type backend struct {
	store sash.Store
	where string                      // for people
	run   func(context.Context) error // runs as long as the service; nil where nothing has to
	done  func()

	client redis.UniversalClient // for what is no decision; nil where the store is memory
	report func() degrade.Report // nil where the store is memory

	// charges reads the log of a key; nil where that cannot be.
	charges func(ctx context.Context, key string, policy *sash.Policy) (admin.Charges, error)
}

// backend makes the store, and has the options tell of it.
func (a *app) backend(ctx context.Context, s *serving, env *envoyenv.Settings, log *slog.Logger, opts *httpapi.Options) (*backend, error) {
	if s.budget <= 0 {
		return nil, fmt.Errorf("--budget %v: it is a time above zero, such as 50ms", s.budget)
	}
	if s.instances < 0 {
		return nil, fmt.Errorf("--instances %d: it is how many instances share the limits, or 0 to count them on Redis", s.instances)
	}
	if s.replicas < 0 {
		return nil, fmt.Errorf("--replicas %d: it is how many replicas have to confirm an admission, or 0 to wait for none", s.replicas)
	}
	url := a.redisURL(s.redis)
	if url == "" {
		url = env.Redis
	}
	if url == "" && s.replicas > 0 {
		return nil, errors.New("--replicas: it is Redis that has replicas: give --redis too")
	}
	if url != "" && s.snapshot != "" {
		return nil, errors.New("--snapshot is for this process's memory: Redis keeps what was charged by itself")
	}
	if url == "" {
		return s.memory(log)
	}
	to, err := connect(url)
	if err != nil {
		return nil, err
	}
	others, err := redisclient.Inspect(url)
	if err != nil {
		to.close()
		return nil, err
	}
	done := func() {
		to.close()
		_ = others.Close()
	}
	redisclient.Log(log)
	where := "redis at " + to.address
	decides := to.client.Detached(&redisstore.Options{Prefix: env.RedisPrefix, Replicas: s.replicas, ReplicaTimeout: s.budget / 2})
	guard, err := degrade.New(decides, degrade.Options{Budget: s.budget, Instances: s.instances, Cluster: to.client.Cluster(), Log: log.With("store", where)})
	if err != nil {
		done()
		return nil, err
	}
	if err := to.ping(ctx); err != nil && ctx.Err() == nil {
		log.Error("Redis does not answer: until it does calls are answered by policy (on_unavailable)", "error", err)
	}
	opts.Health = guard.Health
	opts.Timeout = s.patience()
	if env.HealthNeedsRedis {
		opts.Ready = to.ping
	}
	logs := goredisstore.New(others, &redisstore.Options{Prefix: env.RedisPrefix})
	return &backend{store: guard.Store, where: where, run: guard.Run, done: done, client: others, report: guard.Report, charges: onRedis(logs)}, nil
}

// memory makes the store of a service that has no Redis.
func (s *serving) memory(log *slog.Logger) (*backend, error) {
	store := memstore.New(nil)
	b := &backend{
		store: store, charges: inMemory(store),
		where: "this process's memory: forgotten when it ends, and shared with nobody (--redis shares it)",
		done:  func() {},
	}
	if s.snapshot == "" {
		return b, nil
	}
	file := &snapshot{store, s.snapshot, log}
	if err := file.load(); err != nil {
		return nil, err
	}
	b.where = "this process's memory, written to " + s.snapshot + ", and shared with nobody (--redis shares it)"
	b.run = file.run
	b.done = func() {
		if err := file.save(); err != nil {
			log.Error("what was charged was not written down: it is forgotten", "error", err)
		}
	}
	return b, nil
}

// patience bounds one decision in all, steps and policy included. It is longer than the budget, so that a store
// that does not answer is answered for.
func (s *serving) patience() time.Duration { return max(time.Second, 2*s.budget) }
