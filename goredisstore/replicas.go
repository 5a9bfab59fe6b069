package goredisstore

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"example.com/sash/driver"
	"example.com/sash/redisstore"
)

// RunWait implements redisstore.Waiter. A connection of the pool is set aside for both commands: WAIT knows of
// no other's writes. On a cluster a MOVED or ASK, where nothing has run, is not followed but an error.
func (s *scripter) RunWait(ctx context.Context, script *redisstore.Script, keys []string, arg string, wait redisstore.Wait) (string, int64, error) {
	if err := ctx.Err(); err != nil {
		return "", 0, err
	}
	if _, ends := ctx.Deadline(); !ends || s.deadlines {
		return s.exchange(ctx, script, keys, arg, wait)
	}
	// Beside go-redis, as in process, but all of it: the connection is given back when it is free.
	type outcome struct {
		reply     string
		confirmed int64
		err       error
	}
	done := make(chan outcome, 1)
	go func() {
		var o outcome
		o.reply, o.confirmed, o.err = s.exchange(context.WithoutCancel(ctx), script, keys, arg, wait)
		done <- o
	}()
	select {
	case o := <-done:
		return o.reply, o.confirmed, o.err
	case <-ctx.Done():
		return "", 0, ctx.Err()
	}
}

func (s *scripter) exchange(ctx context.Context, script *redisstore.Script, keys []string, arg string, wait redisstore.Wait) (string, int64, error) {
	node, err := s.node(ctx, keys)
	if err != nil {
		return "", 0, fmt.Errorf("goredisstore: %s: %w", script.Name, err)
	}
	conn := node.Conn()
	defer func() { _ = conn.Close() }() // gives it back
	reply, err := s.run(ctx, conn, script, keys, arg)
	if err != nil || !wait.For(reply) {
		if c, ok := s.client.(*redis.ClusterClient); ok && redis.HasErrorPrefix(err, "MOVED") {
			c.ReloadState(ctx)
		}
		return reply, 0, err
	}
	confirmed, err := s.process(ctx, conn, "wait", wait.Replicas, wait.Timeout.Milliseconds()).Int64()
	if err != nil {
		return reply, 0, fmt.Errorf("goredisstore: WAIT after %s: %w", script.Name, err)
	}
	return reply, confirmed, nil
}

// node returns the client of the server that has the keys of a script.
func (s *scripter) node(ctx context.Context, keys []string) (*redis.Client, error) {
	switch c := s.client.(type) {
	case *redis.Client:
		return c, nil
	case *redis.ClusterClient:
		return c.MasterForKey(ctx, keys[0])
	case *redis.Ring:
		return shard(c, keys)
	}
	return nil, fmt.Errorf("%w: waiting for replicas through a %T", driver.ErrUnsupported, s.client)
}
