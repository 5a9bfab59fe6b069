// Package netbench measures decisions as applications make them: through a client, over a connection, from
// many goroutines, on a real redis-server that shares the machine.
package netbench

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"golang.org/x/sync/errgroup"

	"example.com/sash"
	"example.com/sash/coalesce"
	"example.com/sash/denials"
	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/goredisstore"
	"example.com/sash/internal/bench/load"
	"example.com/sash/lease"
	"example.com/sash/rueidisstore"
	"example.com/sash/stack"
)

// A contender is a way to decide on Redis.
type contender struct {
	name string
	ours bool
	open func(addr string, q quota) (*opened, error)
}

// A quota is the limits and the cost of every call of a scenario.
type quota struct {
	limits     []sash.Limit
	resolution time.Duration // of Sash's window; 0 records every call on its own
	cost       int64
}

// An opened contender decides until it is closed.
type opened struct {
	decide load.Decide
	close  func()
}

// spread makes calls on the keys in turn, 64 at a time, and returns how many were admitted.
func (o *opened) spread(calls, keys int) (admitted int64, err error) {
	var count atomic.Int64
	var group errgroup.Group
	group.SetLimit(many)
	for i := range calls {
		group.Go(func() error {
			allowed, err := o.decide(context.Background(), load.Key(i%keys))
			if allowed {
				count.Add(1)
			}
			return err
		})
	}
	err = group.Wait()
	return count.Load(), err
}

// The ways to reach Redis. A deeper pipeline makes fewer, larger writes and reads, at both ends.
const (
	goRedis          = "go-redis"
	pipelinedGoRedis = "go-redis, automatic pipelining"
	rueidisDefault   = "rueidis"
	singleRueidis    = "rueidis, one connection"
)

// openStore returns a plain store over a client, and the function that closes the client.
func openStore(client, addr string) (driver.Store, func(), error) {
	switch client {
	case goRedis:
		c := openGoRedis(addr)
		return goredisstore.New(c, nil), func() { c.Close() }, nil
	case pipelinedGoRedis:
		c := openGoRedis(addr)
		pipes, err := c.AutoPipeline()
		if err != nil {
			return nil, nil, err
		}
		return goredisstore.New(pipes, nil), func() { pipes.Close(); c.Close() }, nil
	}
	multiplex := 0
	if client == singleRueidis {
		multiplex = -1
	}
	c, err := openRueidis(addr, multiplex)
	if err != nil {
		return nil, nil, err
	}
	return rueidisstore.New(c, nil), c.Close, nil
}

// openGoRedis returns a client with its default pool. It retries nothing, since a retried call charges twice.
func openGoRedis(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})
}

// openRueidis returns a client with 2 to the power of multiplex connections: four for 0, the default, and one
// for -1.
func openRueidis(addr string, multiplex int) (rueidis.Client, error) {
	return rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true, PipelineMultiplex: multiplex})
}

// decorate puts a decorator before a store; "plain" puts none.
func decorate(decorator string, store driver.Store, q quota) (driver.Store, error) {
	switch decorator {
	case "denials":
		return denials.New(store, nil)
	case "coalesce":
		return coalesce.New(store), nil
	case "lease":
		return lease.New(store, longest(q))
	case "stack":
		return stack.New(store, &stack.Options{Failover: failover.Options{Budget: time.Minute}}) // every answer is Redis's
	}
	return store, nil
}

// longest returns the duration of a lease: a hundredth of the shortest window, at most 100 ms.
func longest(q quota) time.Duration {
	d := 100 * time.Millisecond
	for _, l := range q.limits {
		d = min(d, l.Window/100)
	}
	return max(d, lease.MinLease)
}

// sashOver returns Sash with a decorator over each of the clients.
func sashOver(decorator string, clients ...string) []contender {
	var all []contender
	for _, client := range clients {
		name := fmt.Sprintf("Sash %s, %s", decorator, client)
		all = append(all, contender{name: name, ours: true, open: func(addr string, q quota) (*opened, error) {
			plain, closeClient, err := openStore(client, addr)
			if err != nil {
				return nil, err
			}
			store, err := decorate(decorator, plain, q)
			if err != nil {
				return nil, err
			}
			opts := &sash.Options{}
			if q.resolution > 0 {
				opts = &sash.Options{Algorithm: sash.SlidingBuckets, Resolution: q.resolution}
			}
			limiter, err := sash.New(store, opts, q.limits...)
			if err != nil {
				return nil, err
			}
			return &opened{
				decide: func(ctx context.Context, key string) (bool, error) {
					res, err := limiter.AllowN(ctx, key, q.cost)
					return res.Allowed, err
				},
				close: func() {
					if leases, ok := store.(*lease.Store); ok {
						_ = leases.Release(context.Background()) // the server is about to stop
					}
					closeClient()
				},
			}, nil
		}})
	}
	return all
}

// Open opens the limiter of that name on one limit with calls of cost 1, for benchmarks with other clients of the same
// Redis. The caller closes it.
func Open(name, addr string, limit sash.Limit) (decide load.Decide, end func(), err error) {
	for _, c := range contenders().limiters() {
		if c.name != name {
			continue
		}
		q := costing(1, limit)
		if limit.Units > sash.MaxEntries {
			q.resolution = hot.quota.resolution
		}
		o, err := c.open(addr, q)
		if err != nil {
			return nil, nil, err
		}
		return o.decide, o.close, nil
	}
	return nil, nil, fmt.Errorf("netbench: there is no contender %q", name)
}

// A lineup is the contenders. Each group of Sash is over go-redis first, then over rueidis.
type lineup struct {
	plain, denying, coalescing, leasing, stacked []contender

	pipelined []contender // plain, over clients that pipeline more
	rivals    []contender // as their users have them, over go-redis
	lifted    contender   // a rival over go-redis's automatic pipelining
	empty     []contender // the clients' own calls of an empty script; no limiters
}

func contenders() lineup {
	return lineup{
		plain:      sashOver("plain", goRedis, rueidisDefault),
		denying:    sashOver("denials", goRedis, rueidisDefault),
		coalescing: sashOver("coalesce", goRedis, rueidisDefault),
		leasing:    sashOver("lease", goRedis, rueidisDefault),
		stacked:    sashOver("stack", goRedis, rueidisDefault),
		pipelined:  sashOver("plain", pipelinedGoRedis, singleRueidis),
		rivals:     []contender{redisRate(), throttledOnRedis(), ululeOnRedis(), sortedSet()},
		lifted:     pipelinedRedisRate(),
		empty:      emptyCalls(),
	}
}

// limiters returns every contender that limits.
func (l lineup) limiters() []contender {
	return slices.Concat(l.ours(), l.rivals, []contender{l.lifted})
}

// ours returns Sash in every form.
func (l lineup) ours() []contender {
	return slices.Concat(l.plain, l.pipelined, l.denying, l.coalescing, l.leasing, l.stacked)
}

// bare returns the contenders that call Redis for every decision.
func (l lineup) bare() []contender {
	return slices.Concat(l.plain, l.pipelined, l.rivals, []contender{l.lifted})
}

// hot returns the contenders of the sweep of the hot key, in which nothing is refused.
func (l lineup) hot() []contender {
	return slices.Concat(l.plain, l.coalescing, l.leasing, l.rivals)
}
