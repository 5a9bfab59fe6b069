package serve

import (
	"fmt"

	"example.com/sash/redisstore"
	"example.com/sash/service/internal/degrade"
	"example.com/sash/service/internal/redisclient"
	"example.com/sash/service/internal/stats"
)

// Homes are the Redis servers that all regions share, by name.
type homes struct {
	watch map[string]*degrade.Home
	reads map[string]*redisstore.Store // for people
	close func()
}

// openHomes connects later, as openRedis does.
func (s *instance) openHomes() (*homes, error) {
	var clients []*redisclient.Client
	out := &homes{watch: make(map[string]*degrade.Home), reads: make(map[string]*redisstore.Store), close: func() {
		for _, client := range clients {
			client.Close()
		}
	}}
	for name, url := range s.Homes {
		client, err := redisclient.Far(url)
		if err != nil {
			out.close()
			return nil, fmt.Errorf("--home: %w", err)
		}
		clients = append(clients, client)
		opts := &redisstore.Options{Prefix: s.RedisPrefix, Replicas: s.Replicas, ReplicaTimeout: s.HomeBudget / 2}
		watch := degrade.NewHome(client.String(), s.HomeBudget, client.Store(opts), s.Log)
		watch.Store = client.Observed(opts, watch.Note)
		s.stats.Home(name, func() stats.Home {
			h := watch.Stats()
			return stats.Home{
				Calls: h.Calls, Failed: h.Failed, Errands: h.Errands, Leased: h.Leased, Spent: h.Spent, Returned: h.Returned, Alone: h.Alone, Way: h.Way, Up: h.Up,
			}
		})
		out.watch[name], out.reads[name] = watch, client.Store(&redisstore.Options{Prefix: s.RedisPrefix})
	}
	return out, nil
}
