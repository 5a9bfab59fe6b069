package netbench

import (
	"context"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/throttled/throttled/v2"
	throttledstore "github.com/throttled/throttled/v2/store/goredisstore.v9"
	"github.com/ulule/limiter/v3"
	ululestore "github.com/ulule/limiter/v3/drivers/store/redis"

	"example.com/sash"
	"example.com/sash/internal/bench/load"
	"example.com/sash/internal/bench/redisbench"
)

// rival is a library over go-redis; limit returns its decision under one limit.
func rival(name string, limit func(c *redis.Client, l sash.Limit, cost int64) (load.Decide, error)) contender {
	return contender{name: name, open: func(addr string, q quota) (*opened, error) {
		c := openGoRedis(addr)
		decisions := make([]load.Decide, len(q.limits))
		for i, l := range q.limits {
			var err error
			if decisions[i], err = limit(c, l, q.cost); err != nil {
				return nil, err
			}
		}
		return &opened{decide: inTurn(decisions), close: func() { c.Close() }}, nil
	}}
}

// inTurn makes one decision for each limit, on a key of its own, until one refuses. That is neither one step
// nor all or nothing.
func inTurn(decisions []load.Decide) load.Decide {
	if len(decisions) == 1 {
		return decisions[0]
	}
	return func(ctx context.Context, key string) (bool, error) {
		for i, decide := range decisions {
			if allowed, err := decide(ctx, key+":"+strconv.Itoa(i)); !allowed || err != nil {
				return false, err
			}
		}
		return true, nil
	}
}

func decideByRedisRate(r *redis_rate.Limiter, l sash.Limit, cost int64) load.Decide {
	limit := redis_rate.Limit{Rate: int(l.Units), Burst: int(l.Units), Period: l.Window}
	return func(ctx context.Context, key string) (bool, error) {
		res, err := r.AllowN(ctx, key, limit, int(cost))
		return err == nil && res.Allowed > 0, err
	}
}

// redisRate is github.com/go-redis/redis_rate: GCRA in a script.
func redisRate() contender {
	return rival("redis_rate v10", func(c *redis.Client, l sash.Limit, cost int64) (load.Decide, error) {
		return decideByRedisRate(redis_rate.NewLimiter(c), l, cost), nil
	})
}

// pipelinedRedisRate is redisRate over go-redis's automatic pipelining, which shows the client's part.
func pipelinedRedisRate() contender {
	return rival("redis_rate v10, automatic pipelining", func(c *redis.Client, l sash.Limit, cost int64) (load.Decide, error) {
		pipes, err := c.AutoPipeline() // one per client, closed with it
		if err != nil {
			return nil, err
		}
		return decideByRedisRate(redis_rate.NewLimiter(pipes), l, cost), nil
	})
}

// throttledOnRedis is github.com/throttled/throttled: GCRA by compare and swap, which gives up after ten tries.
func throttledOnRedis() contender {
	return rival("throttled v2", func(c *redis.Client, l sash.Limit, cost int64) (load.Decide, error) {
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
	return rival("ulule/limiter v3", func(c *redis.Client, l sash.Limit, cost int64) (load.Decide, error) {
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
	return rival("sorted set by hand", func(c *redis.Client, l sash.Limit, cost int64) (load.Decide, error) {
		window := l.Window.Microseconds()
		return func(ctx context.Context, key string) (bool, error) {
			reply, err := script.Run(ctx, c, []string{key}, window, l.Units, cost, strconv.FormatInt(serial.Add(1), 36)).Slice()
			return err == nil && reply[0] == int64(1), err
		}, nil
	})
}

// emptyScript has an answer, and emptyKey and emptyArg a request, as long as those of a decision on one limit.
var (
	emptyScript = `return "` + strings.Repeat("x", 48) + `"`
	emptyKey    = []string{"sash:log:client:000000"}
	emptyArg    = strings.Repeat("x", 26)
)

// emptyCalls are the clients' own calls of an empty script.
func emptyCalls() []contender {
	return []contender{
		{name: "empty EVALSHA, go-redis", open: func(addr string, _ quota) (*opened, error) {
			c, script := openGoRedis(addr), redis.NewScript(emptyScript)
			return &opened{decide: func(ctx context.Context, _ string) (bool, error) {
				return true, script.Run(ctx, c, emptyKey, emptyArg).Err()
			}, close: func() { c.Close() }}, nil
		}},
		{name: "empty EVALSHA, rueidis", open: func(addr string, _ quota) (*opened, error) {
			c, err := openRueidis(addr, 0)
			if err != nil {
				return nil, err
			}
			script, arg := rueidis.NewLuaScript(emptyScript), []string{emptyArg}
			return &opened{decide: func(ctx context.Context, _ string) (bool, error) {
				return true, script.Exec(ctx, c, emptyKey, arg).Error()
			}, close: c.Close}, nil
		}},
	}
}
