package goredisstore

import (
	"context"
	"net"

	"github.com/redis/go-redis/v9"

	"example.com/sash/redisstore"
)

// Greet makes client connect through [redisstore.Dial] from now on: the error of a wrong address says what answers there,
// [redisstore.Silent] names servers that do not answer, and [redisstore.Refused] says why one could not be reached. Errors
// of calls without an answer quote both; for a Cluster that cannot be reached at all, only with [Tune]. It wraps the way
// in which client connects, TLS included.
// Call it once, before client is used. It is not for clients of other types than those of go-redis, and does nothing to
// them.
//
// Behind Sentinels it greets the primary, and not the Sentinels.
func Greet(client redis.UniversalClient) {
	node := func(c *redis.Client) { c.AddHook(greeting{c.Options()}) }
	switch c := client.(type) {
	case *redis.Client:
		node(c)
	case *redis.ClusterClient:
		c.OnNewNode(node)
	case *redis.Ring:
		c.OnNewNode(node)
		_ = c.ForEachShard(context.Background(), func(_ context.Context, shard *redis.Client) error {
			node(shard) // it was there before OnNewNode
			return nil
		})
	}
}

// behindSentinels is what go-redis has in place of the address of a primary, which the Sentinels report next.
const behindSentinels = "FailoverClient"

// A greeting is a hook of the client with these options.
type greeting struct{ opts *redis.Options }

// DialHook implements redis.Hook.
func (g greeting) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, g.opts.DialTimeout) // go-redis sets none for subscriptions
		defer cancel()
		connect := func(ctx context.Context) (net.Conn, error) { return next(ctx, network, addr) }
		if addr == behindSentinels {
			conn, err := connect(ctx)
			if err != nil {
				return nil, err
			}
			addr, connect = conn.RemoteAddr().String(), func(context.Context) (net.Conn, error) { return conn, nil }
		}
		return redisstore.Dial(ctx, addr, connect)
	}
}

// ProcessHook implements redis.Hook.
func (greeting) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook implements redis.Hook.
func (greeting) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
