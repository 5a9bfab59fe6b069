package serve

import (
	"cmp"
	"fmt"

	"example.com/sash/driver"
	"example.com/sash/lease"
	"example.com/sash/redisstore"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/degrade"
	"example.com/sash/service/internal/redisclient"
	"example.com/sash/service/internal/stats"
)

// A home is the Redis that all regions share. The zero home is none.
type home struct {
	watch *degrade.Home
	store driver.Store      // decides
	reads *redisstore.Store // for people
	close func()
}

// openHome connects later, as openRedis does.
func (s *instance) openHome() (*home, error) {
	if s.Home == "" {
		return &home{close: func() {}}, nil
	}
	client, err := redisclient.Far(s.Home)
	if err != nil {
		return nil, fmt.Errorf("--home: %w", err)
	}
	opts := &redisstore.Options{Prefix: s.RedisPrefix, Replicas: s.Replicas, ReplicaTimeout: s.HomeBudget / 2}
	watch := degrade.NewHome(client.String(), s.HomeBudget, client.Store(opts), s.Log)
	s.stats.Home(func() stats.Home {
		h := watch.Stats()
		return stats.Home{
			Calls: h.Calls, Failed: h.Failed, Errands: h.Errands, Leased: h.Leased, Spent: h.Spent, Returned: h.Returned, Alone: h.Alone, Way: h.Way, Up: h.Up,
		}
	})
	return &home{
		watch: watch, store: client.Observed(opts, watch.Note), reads: client.Store(&redisstore.Options{Prefix: s.RedisPrefix}), close: client.Close,
	}, nil
}

// ownShare returns the own share of this region, or nil.
func (s *instance) ownShare() *lease.Own {
	if s.Region == "" {
		return nil
	}
	return &lease.Own{Region: s.Region, Regions: s.Regions, Percent: cmp.Or(s.OwnShare, config.DefaultOwnShare)}
}
