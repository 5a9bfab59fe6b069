package regionbench

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"example.com/sash"
	"example.com/sash/goredisstore"
	"example.com/sash/redisstore"
	"example.com/sash/rueidisstore"
)

// An answer is what a caller learns.
type answer struct {
	admitted bool
	at       int64 // when the cost was charged or spent, in nanoseconds since the Unix epoch; 0 if the caller does not learn it
	leased   bool
}

// A decide makes one decision.
type decide func(ctx context.Context, key string, cost int64) (answer, error)

// open connects.
func (d *decider) open() (decide, func(), error) {
	switch d.Kind {
	case central:
		return d.plain(rueidisName, d.Home) // one connection carries all calls that are on the way
	case apart:
		return d.plain(d.Client, d.Near)
	case leased:
		return d.leased()
	case served:
		return d.served()
	}
	return nil, nil, errors.New("regionbench: there is no such way to decide")
}

// plain decides every call on one Redis.
func (d *decider) plain(client, addr string) (decide, func(), error) {
	store, done, err := openStore(client, addr, d.Prefix)
	if err != nil {
		return nil, nil, err
	}
	limiter, err := sash.New(store, nil, sash.Every(d.Limit.Units, d.Limit.Window))
	if err != nil {
		done()
		return nil, nil, err
	}
	return func(ctx context.Context, key string, cost int64) (answer, error) {
		res, err := limiter.AllowN(ctx, key, cost)
		return answer{admitted: res.Allowed, at: res.At.UnixNano()}, err
	}, done, nil
}

// openStore returns a store over a client of its own, and the function that closes the client.
func openStore(client, addr, prefix string) (*redisstore.Store, func(), error) {
	opts := &redisstore.Options{Prefix: prefix}
	if client == goRedis {
		c := redis.NewClient(goredisstore.Tune(&redis.Options{Addr: addr, PoolSize: 64, MaxRetries: -1}))
		return goredisstore.New(c, opts), func() { c.Close() }, nil
	}
	c, err := rueidis.NewClient(rueidisstore.Tune(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true}))
	if err != nil {
		return nil, nil, err
	}
	return rueidisstore.New(c, opts), c.Close, nil
}
