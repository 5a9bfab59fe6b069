package serve

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/sash/redisstore"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/degrade"
	"example.com/sash/service/internal/redisclient"
)

// A store decides, and answers what the ports ask about it. Functions may be nil, where the handlers of the ports have
// a default.
type store struct {
	place decide.Stores
	where string                        // for people; without the password
	runs  []func(context.Context) error // run as long as the service
	close func()

	client *redisclient.Client // for exceptions; nil in memory
	health func() degrade.Health
	ready  func(context.Context) error
	report func() degrade.Report
}

func (s *instance) openStore(ctx context.Context) (*store, error) {
	switch {
	case s.Redis != "":
		return s.openRedis(ctx)
	case s.Home != "":
		return nil, errors.New("--home is for rules of all regions, whose leases are in this region's Redis: give --redis too")
	}
	memory := degrade.NewMemory(s.Memory, s.Log)
	return &store{
		place: memory.Place, close: func() {},
		runs: []func(context.Context) error{memory.Run}, health: memory.Health, report: memory.Report,
		where: "this process's memory: forgotten when it ends, and not shared with other instances (--redis shares it)",
	}, nil
}

// openRedis connects later: Redis may be away, and then rules are answered by their failure modes.
func (s *instance) openRedis(ctx context.Context) (*store, error) {
	client, err := redisclient.New(s.Redis)
	if err != nil {
		return nil, err
	}
	if err := client.Hold(s.Budget); err != nil {
		client.Close()
		return nil, fmt.Errorf("--budget: %w", err)
	}
	others, err := redisclient.New(s.Redis) // what decides nothing must not delay what does
	if err != nil {
		client.Close()
		return nil, err
	}
	disconnect := func() {
		client.Close()
		others.Close()
	}
	out := &store{where: "redis at " + client.String(), client: others}
	s.stats.Redis(client.Connections)
	log := s.Log.With("store", out.where)
	home, closeHome, err := s.openHome()
	if err != nil {
		disconnect()
		return nil, err
	}
	detached := client.Detached(&redisstore.Options{Prefix: s.RedisPrefix, Replicas: s.Replicas, ReplicaTimeout: s.Budget / 2})
	guard, err := degrade.New(detached, degrade.Options{
		Home:   home,
		Budget: s.Budget, OpenPerSecond: s.OpenPerSecond, Local: s.Memory, Instances: s.Instances, Cluster: client.Cluster(),
		Address: client.String(), Uncounted: s.stats.Uncounted, Failed: s.stats.StoreFailed, Log: log,
	})
	if err != nil {
		disconnect()
		closeHome()
		return nil, err
	}
	out.close = func() {
		guard.Close()
		disconnect()
		closeHome()
	}
	ping := func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if err := client.Ping(ctx); err != nil {
			return fmt.Errorf("redis at %s: %w", client, err)
		}
		return nil
	}
	if err := ping(ctx); err != nil && ctx.Err() == nil {
		s.Log.Error("Redis does not answer: until it does, calls are answered by on_unavailable", "error", err)
	}
	if s.ReadyNeedsRedis {
		out.ready = ping
	}
	out.place, out.runs = guard.Place, []func(context.Context) error{guard.Run}
	out.health, out.report = guard.Health, guard.Report
	return out, nil
}

// openHome returns the Redis that all regions share, nil for none, and what closes it. It connects later, as openRedis does.
func (s *instance) openHome() (*degrade.Home, func(), error) {
	if s.Home == "" {
		return nil, func() {}, nil
	}
	client, err := redisclient.Far(s.Home)
	if err != nil {
		return nil, nil, fmt.Errorf("--home: %w", err)
	}
	if err := client.Hold(s.HomeBudget); err != nil {
		client.Close()
		return nil, nil, fmt.Errorf("--home-budget: %w", err)
	}
	opts := &redisstore.Options{Prefix: s.RedisPrefix, Replicas: s.Replicas, ReplicaTimeout: s.HomeBudget / 2}
	watch, err := degrade.NewHome(client.String(), s.HomeBudget, client.Store(opts), s.Log)
	if err != nil {
		client.Close()
		return nil, nil, fmt.Errorf("--home: %w", err)
	}
	watch.Store = client.Observed(opts, watch.Note)
	return watch, client.Close, nil
}

// patience bounds one decision in all, the failure mode's answer and a wait for its turn included. It is longer than the
// budget, so that a store that does not answer still gets an answer by its failure mode.
func (s *instance) patience() time.Duration {
	longest := max(time.Second, 2*s.Budget)
	if s.Home != "" {
		longest = max(longest, 2*(s.Budget+s.HomeBudget))
	}
	return longest + time.Second
}
