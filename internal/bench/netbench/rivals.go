package netbench

import (
	"context"
	"strconv"
	"sync/atomic"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/throttled/throttled/v2"
	throttledstore "github.com/throttled/throttled/v2/store/goredisstore.v9"
	"github.com/ulule/limiter/v3"
	ululestore "github.com/ulule/limiter/v3/drivers/store/redis"

	"example.com/sash"
	"example.com/sash/internal/bench/redisbench"
)

// A decision is one limit of a rival. Those that know one limit are asked once for each, which is neither
// one step nor all or nothing.
type decision func(ctx context.Context, key string) (allowed bool, err error)

// rival is a library over go-redis. Limit returns what decides over one limit.
func rival(name string, limit func(c *redis.Client, l sash.Limit, cost int64) (decision, error)) contender {
	return contender{name: name, open: func(addr string, q quota) (*opened, error) {
		c := openGoRedis(addr)
		decisions := make([]decision, len(q.limits))
		for i, l := range q.limits {
			var err error
			if decisions[i], err = limit(c, l, q.cost); err != nil {
				return nil, err
			}
		}
		return &opened{decide: every(decisions), close: func() { c.Close() }}, nil
	}}
}

// every asks one after the other, until one refuses. Each limit has keys of its own.
func every(decisions []decision) decision {
	if len(decisions) == 1 {
		return decisions[0]
	}
	return func(ctx context.Context, key string) (bool, error) {
		for i, d := range decisions {
			if allowed, err := d(ctx, key+":"+strconv.Itoa(i)); !allowed || err != nil {
				return false, err
			}
		}
		return true, nil
	}
}

func redisRateLimit(l sash.Limit) redis_rate.Limit {
	return redis_rate.Limit{Rate: int(l.Units), Burst: int(l.Units), Period: l.Window}
}

func decideByRedisRate(r *redis_rate.Limiter, l sash.Limit, cost int64) decision {
	limit := redisRateLimit(l)
	return func(ctx context.Context, key string) (bool, error) {
		res, err := r.AllowN(ctx, key, limit, int(cost))
		return err == nil && res.Allowed > 0, err
	}
}

// redisRate is github.com/go-redis/redis_rate: GCRA in a script.
func redisRate() contender {
	return rival("redis_rate v10", func(c *redis.Client, l sash.Limit, cost int64) (decision, error) {
		return decideByRedisRate(redis_rate.NewLimiter(c), l, cost), nil
	})
}

// pipelinedRedisRate is the same over go-redis's automatic pipelining, which shows what is the client's.
func pipelinedRedisRate() contender {
	return rival("redis_rate v10, automatic pipelining", func(c *redis.Client, l sash.Limit, cost int64) (decision, error) {
		pipes, err := c.AutoPipeline() // one for the client, closed with it
		if err != nil {
			return nil, err
		}
		return decideByRedisRate(redis_rate.NewLimiter(pipes), l, cost), nil
	})
}

// throttledOnRedis is github.com/throttled/throttled: GCRA by compare and swap, tried ten times.
func throttledOnRedis() contender {
	return rival("throttled v2", func(c *redis.Client, l sash.Limit, cost int64) (decision, error) {
		store, err := throttledstore.NewCtx(c, "throttled:")
		if err != nil {
			return nil, err
		}
		r, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{
			MaxRate:  throttled.PerDuration(int(l.Units), l.Window),
			MaxBurst: int(l.Units) - 1,
		})
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context, key string) (bool, error) {
			limited, _, err := r.RateLimitCtx(ctx, key, int(cost))
			return !limited && err == nil, err
		}, nil
	})
}

// ululeOnRedis is github.com/ulule/limiter: a fixed window that begins with its first call.
func ululeOnRedis() contender {
	return rival("ulule/limiter v3", func(c *redis.Client, l sash.Limit, cost int64) (decision, error) {
		store, err := ululestore.NewStore(c)
		if err != nil {
			return nil, err
		}
		r := limiter.New(store, limiter.Rate{Limit: l.Units, Period: l.Window})
		return func(ctx context.Context, key string) (bool, error) {
			res, err := r.Increment(ctx, key, cost)
			return err == nil && !res.Reached, err
		}, nil
	})
}

// sortedSet is the script that services write by hand.
func sortedSet() contender {
	script := redis.NewScript(redisbench.SortedSet)
	var serial atomic.Int64
	return rival("sorted set by hand", func(c *redis.Client, l sash.Limit, cost int64) (decision, error) {
		window := l.Window.Microseconds()
		return func(ctx context.Context, key string) (bool, error) {
			reply, err := script.Run(ctx, c, []string{key}, window, l.Units, cost, strconv.FormatInt(serial.Add(1), 36)).Slice()
			return err == nil && reply[0] == int64(1), err
		}, nil
	})
}
