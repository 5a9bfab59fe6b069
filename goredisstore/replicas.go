package goredisstore

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"example.com/sash"
	"example.com/sash/redisstore"
)

// RunWait implements redisstore.Waiter. A connection of the pool is set aside for both commands: WAIT knows of
// no other's writes. On a cluster a MOVED or ASK, where nothing has run, is not followed but an error.
func (s *scripter) RunWait(ctx context.Context, script *redisstore.Script, keys []string, arg string, wait redisstore.Wait) (string, int64, error) {
	node, err := s.node(ctx, keys[0])
	if err != nil {
		return "", 0, fmt.Errorf("goredisstore: %s: %w", script.Name, err)
	}
	conn := node.Conn()
	defer conn.Close() // gives it back, when the last command on it has ended
	reply, err := s.run(ctx, conn, script, keys, arg)
	if err != nil || !wait.For(reply) {
		if c, ok := s.client.(*redis.ClusterClient); ok && redis.HasErrorPrefix(err, "MOVED") {
			c.ReloadState(ctx)
		}
		return reply, 0, err
	}
	confirmed, err := s.process(ctx, conn, "wait", wait.Replicas, wait.Timeout.Milliseconds()).Int64()
	if err != nil {
		return "", 0, fmt.Errorf("goredisstore: %s has run, but WAIT: %w", script.Name, err)
	}
	return reply, confirmed, nil
}

// node returns the client of the server that has a key.
func (s *scripter) node(ctx context.Context, key string) (*redis.Client, error) {
	switch c := s.client.(type) {
	case *redis.Client:
		return c, nil
	case *redis.ClusterClient:
		return c.MasterForKey(ctx, key)
	case *redis.Ring:
		return c.GetShardClientForKey(key)
	}
	return nil, fmt.Errorf("%w: waiting for replicas through a %T", sash.ErrUnsupported, s.client)
}
