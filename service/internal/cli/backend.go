package cli

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/sash"
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

	client redis.UniversalClient // nil where the store is memory
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
	url := a.redisURL(s.redis)
	if url == "" {
		url = env.Redis
	}
	if url == "" {
		store := memstore.New(nil)
		return &backend{
			store: store, charges: inMemory(store),
			where: "this process's memory: forgotten when it ends, and shared with nobody (--redis shares it)",
			done:  func() {},
		}, nil
	}
	redisclient.Log(log)
	to, err := connectAs(url, &redisstore.Options{Prefix: env.RedisPrefix})
	if err != nil {
		return nil, err
	}
	where := "redis at " + to.address
	guard, err := degrade.New(to.store, degrade.Options{Budget: s.budget, Instances: s.instances, Log: log.With("store", where)})
	if err != nil {
		to.close()
		return nil, err
	}
	if err := to.ping(ctx); err != nil && ctx.Err() == nil {
		log.Error("Redis does not answer: until it does calls are answered by policy (on_unavailable)", "error", err)
	}
	opts.Health = guard.Health
	opts.Timeout = max(time.Second, 2*s.budget)
	if env.HealthNeedsRedis {
		opts.Ready = to.ping
	}
	return &backend{store: guard.Store, where: where, run: guard.Run, done: to.close, client: to.client, report: guard.Report, charges: onRedis(to.store)}, nil
}
