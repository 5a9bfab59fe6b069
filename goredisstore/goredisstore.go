// Package goredisstore keeps charges on Redis or Valkey through a client of
// [github.com/redis/go-redis/v9]: a single node, Sentinel or a Cluster.
//
// The client stays the caller's: its pools, timeouts and credentials are used as they are, and it is never closed. Calls that
// find no connection of the pool free go together, in one pipeline. [Tune] sets the options of a client that recovers quickly,
// and [Greet] makes errors say which server is silent or is not a Redis. go-redis resends a command if its reply did not come
// in time, but never a decision that may have been made. So a call is charged at most once, whatever MaxRetries and
// MaxRedirects are. The client follows a MOVED or ASK of a cluster, where nothing has run, and tries again to make a
// connection.
//
// A call returns at its context's deadline. A client with ContextTimeoutEnabled sees to that itself, and closes the connection.
// With any other client, the store waits in a goroutine, and the connection is free again when the reply comes or ReadTimeout
// passes. A call notices a cancellation without a deadline before it sends a command, and when the reply comes or ReadTimeout passes.
package goredisstore

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/sash/driver"
	"example.com/sash/redisstore"
)

// New returns a store that decides through a client. A nil opts is the default. New does no I/O. It panics if client
// is nil or a Ring: a Ring moves keys to another server when theirs does not answer, and so forgets charges.
//
// With opts.Replicas, make the client with [Tune], or with MaintNotificationsConfig's Mode ModeDisabled, unless the
// server has these notifications, as Redis Enterprise does. go-redis up to 9.23.0 turns them off at the first refusal
// of a server. A connection that is set aside for WAIT can do so at the same time as another, which is a data race.
func New(client redis.UniversalClient, opts *redisstore.Options) *redisstore.Store {
	if driver.Nil(client) {
		panic("goredisstore: New needs a client, such as redis.NewClient returns")
	}
	s := &scripter{client: client, servers: make(map[string]*server)}
	switch c := client.(type) {
	case *redis.Client:
		s.deadlines = c.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		s.cluster = true
		s.deadlines = c.Options().ContextTimeoutEnabled
	case *redis.Ring:
		panic("goredisstore: a Ring forgets charges when it moves keys; use a Cluster, or one server")
	}
	return redisstore.New(s, opts)
}

type scripter struct {
	client    redis.UniversalClient
	cluster   bool
	deadlines bool // the client heeds the deadlines of contexts

	mu      sync.Mutex
	servers map[string]*server // by address; guarded by mu
}

// Unconnected implements [redisstore.Connector]. It does not know about Clusters: go-redis may wait for their state.
func (s *scripter) Unconnected() string {
	c, ok := s.client.(*redis.Client)
	if !ok || c.PoolStats().TotalConns > 0 {
		return ""
	}
	addr, attempts := c.Options().Addr, c.Options().DialerRetries
	if addr == behindSentinels {
		addr = "the primary"
	}
	said := "the client has no connection to " + addr
	if err := redisstore.Refused(addr); err != nil {
		return said + ": " + err.Error()
	}
	if attempts > 1 {
		said += fmt.Sprintf(" and says why only after %d attempts to connect (DialerRetries); see goredisstore.Tune", attempts)
	}
	return said
}

// Cluster reports whether the keys of one script must be in one slot.
func (s *scripter) Cluster() bool { return s.cluster }

// Run runs a script.
func (s *scripter) Run(ctx context.Context, script *redisstore.Script, keys []string, arg string) (string, error) {
	return s.run(ctx, s.to(ctx, keys), script, keys, arg)
}

// A processor sends commands: a client, or a single connection.
type processor interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

func (s *scripter) run(ctx context.Context, to processor, script *redisstore.Script, keys []string, arg string) (string, error) {
	reply, err := s.send(ctx, to, "evalsha", script.SHA1, keys, arg).Text()
	if redis.HasErrorPrefix(err, "NOSCRIPT") { // it did not run
		reply, err = s.send(ctx, to, "eval", script.Text, keys, arg).Text()
	}
	if redis.HasErrorPrefix(err, "CROSSSLOT") { // a cluster behind a client that does not look like one
		return "", driver.ErrApart
	}
	if err != nil {
		return "", fmt.Errorf("goredisstore: %s: %w", script.Name, err)
	}
	return reply, nil
}

func (s *scripter) send(ctx context.Context, to processor, name, script string, keys []string, arg string) *redis.Cmd {
	args := append(make([]any, 0, 4+len(keys)), name, script, len(keys))
	for _, key := range keys {
		args = append(args, key)
	}
	return s.process(ctx, to, append(args, arg)...)
}

// process sends one command, once. It returns the command with its reply, or another command with the context's
// error if the context ended first.
func (s *scripter) process(ctx context.Context, to processor, args ...any) *redis.Cmd {
	cmd := once{redis.NewCmd(ctx, args...)}
	ended := ctx.Err() != nil || s.beside(ctx, func() { _ = to.Process(ctx, cmd) }) // cmd has the error
	if deadline, ends := ctx.Deadline(); !ended && cmd.Err() != nil && ends && !time.Now().Before(deadline) {
		<-ctx.Done() // a connection's deadline can be a moment ahead of its context's
		ended = true
	}
	if !ended {
		return cmd.Cmd
	}
	failed := redis.NewCmd(ctx)
	failed.SetErr(ctx.Err())
	return failed
}

// beside calls do, in a goroutine if the client does not heed the deadline of the context. It reports whether the context
// ended first. In that case do still runs, and the caller must not read what it writes.
func (s *scripter) beside(ctx context.Context, do func()) (ended bool) {
	if _, ends := ctx.Deadline(); !ends || s.deadlines {
		do()
		return false
	}
	done := make(chan struct{})
	go func() {
		do()
		close(done)
	}()
	select {
	case <-done:
		return false
	case <-ctx.Done():
		return true
	}
}

// RunWait implements [redisstore.Waiter]. It sets a connection of the pool aside for both commands, because WAIT counts
// only writes of its own connection. On a cluster a MOVED or ASK, where nothing has run, is an error.
func (s *scripter) RunWait(ctx context.Context, script *redisstore.Script, keys []string, arg string, wait redisstore.Wait) (string, int64, error) {
	if err := ctx.Err(); err != nil {
		return "", 0, err
	}
	var reply string
	var confirmed int64
	var err error
	within := ctx
	if !s.deadlines {
		within = context.WithoutCancel(ctx) // the connection goes back to the pool when it is free
	}
	if s.beside(ctx, func() { reply, confirmed, err = s.exchange(within, script, keys, arg, wait) }) {
		return "", 0, ctx.Err()
	}
	return reply, confirmed, err
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

func (s *scripter) node(ctx context.Context, keys []string) (*redis.Client, error) {
	switch c := s.client.(type) {
	case *redis.Client:
		return c, nil
	case *redis.ClusterClient:
		return c.MasterForKey(ctx, keys[0])
	}
	return nil, fmt.Errorf("%w: waiting for replicas through a %T", driver.ErrUnsupported, s.client)
}

// once is a command that is not sent again when it may have run.
type once struct{ *redis.Cmd }

// NoRetry makes every kind of client return the error instead of sending the command again.
func (once) NoRetry() bool { return true }

// Clone returns a copy that is not sent again either.
func (c once) Clone() redis.Cmder { return once{c.Cmd.Clone().(*redis.Cmd)} }
