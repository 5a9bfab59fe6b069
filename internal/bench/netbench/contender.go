// Package netbench measures decisions as applications make them: through a client, over a connection, from
// many goroutines, on a real redis-server that shares the machine.
package netbench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"example.com/sash"
	"example.com/sash/coalesce"
	"example.com/sash/denials"
	"example.com/sash/goredisstore"
	"example.com/sash/lease"
	"example.com/sash/rueidisstore"
)

// A contender is a way to decide on Redis.
type contender struct {
	name string
	ours bool
	open func(addr string, q quota) (*opened, error)
}

// A quota is what every key of a scenario is held to.
type quota struct {
	limits     []sash.Limit
	resolution time.Duration // of Sash's window; 0 for every call on its own
	cost       int64
}

// An opened contender decides until it is closed.
type opened struct {
	decide func(ctx context.Context, key string) (allowed bool, err error)
	close  func()
}

// A client is a way to reach Redis.
type client struct {
	name string
	open func(addr string) (sash.Store, func(), error)
}

var (
	plainGoRedis = client{"go-redis", func(addr string) (sash.Store, func(), error) {
		c := openGoRedis(addr)
		return goredisstore.New(c, nil), func() { c.Close() }, nil
	}}
	pipelinedGoRedis = client{"go-redis, automatic pipelining", func(addr string) (sash.Store, func(), error) {
		c := openGoRedis(addr)
		pipes, err := c.AutoPipeline()
		if err != nil {
			return nil, nil, err
		}
		return goredisstore.New(pipes, nil), func() { pipes.Close(); c.Close() }, nil
	}}
	pipelinedRueidis = client{"rueidis", func(addr string) (sash.Store, func(), error) {
		return rueidisStore(openRueidis(addr, 0))
	}}
	// A deeper pipeline makes fewer, larger writes and reads, at both ends.
	singleRueidis = client{"rueidis, one connection", func(addr string) (sash.Store, func(), error) {
		return rueidisStore(openRueidis(addr, -1))
	}}
)

func rueidisStore(c rueidis.Client, err error) (sash.Store, func(), error) {
	if err != nil {
		return nil, nil, err
	}
	return rueidisstore.New(c, nil), c.Close, nil
}

// openGoRedis returns a client as its users have it, with the pool of its default size. It repeats nothing:
// a contender that charges twice is not what is measured.
func openGoRedis(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})
}

// openRueidis returns a client with 2 to the power of multiplex connections: 0 is rueidis's default, which
// is 4 of them, and -1 is one.
func openRueidis(addr string, multiplex int) (rueidis.Client, error) {
	return rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true, PipelineMultiplex: multiplex})
}

// A layer is what stands before the store. The function it returns ends it.
type layer struct {
	name string
	wrap func(store sash.Store, q quota) (sash.Store, func(), error)
}

var layers = []layer{
	{"plain", func(store sash.Store, _ quota) (sash.Store, func(), error) { return store, func() {}, nil }},
	{"denials", func(store sash.Store, _ quota) (sash.Store, func(), error) {
		s, err := denials.New(store, nil)
		return s, func() {}, err
	}},
	{"coalesce", func(store sash.Store, _ quota) (sash.Store, func(), error) {
		return coalesce.New(store), func() {}, nil
	}},
	{"lease", func(store sash.Store, q quota) (sash.Store, func(), error) {
		s, err := lease.New(store, longest(q))
		if err != nil {
			return nil, nil, err
		}
		return s, func() { _ = s.Release(context.Background()) }, nil // the server is about to go
	}},
}

// longest is the lease for a quota: a hundredth of the shortest window, up to 100 ms.
func longest(q quota) time.Duration {
	d := 100 * time.Millisecond
	for _, l := range q.limits {
		d = min(d, l.Window/100)
	}
	return max(d, lease.MinLease)
}

// sashOn is Sash with a layer, over a client.
func sashOn(c client, l layer) contender {
	return contender{name: fmt.Sprintf("Sash %s, %s", l.name, c.name), ours: true, open: func(addr string, q quota) (*opened, error) {
		store, closeClient, err := c.open(addr)
		if err != nil {
			return nil, err
		}
		store, end, err := l.wrap(store, q)
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
			close: func() { end(); closeClient() },
		}, nil
	}}
}

// lineup is who takes part.
type lineup struct {
	plain     []contender // Sash without a layer: over go-redis and over rueidis
	pipelined []contender // the same over clients that pipeline more
	layered   []contender // denials, coalesce and lease, each over both clients
	rivals    []contender // as their users have them, over go-redis
	lifted    contender   // a rival over go-redis's automatic pipelining
}

func contenders() lineup {
	var l lineup
	for i, layer := range layers {
		for _, c := range []client{plainGoRedis, pipelinedRueidis} {
			if i == 0 {
				l.plain = append(l.plain, sashOn(c, layer))
			} else {
				l.layered = append(l.layered, sashOn(c, layer))
			}
		}
	}
	l.pipelined = []contender{sashOn(pipelinedGoRedis, layers[0]), sashOn(singleRueidis, layers[0])}
	l.rivals = []contender{redisRate(), throttledOnRedis(), ululeOnRedis(), sortedSet()}
	l.lifted = pipelinedRedisRate()
	return l
}

// all is everybody.
func (l lineup) all() []contender {
	return append(l.ours(), append(slices.Clone(l.rivals), l.lifted)...)
}

// ours is Sash in every form.
func (l lineup) ours() []contender { return slices.Concat(l.plain, l.pipelined, l.layered) }

// bare is everybody who asks Redis for each call.
func (l lineup) bare() []contender {
	return append(slices.Concat(l.plain, l.pipelined, l.rivals), l.lifted)
}
