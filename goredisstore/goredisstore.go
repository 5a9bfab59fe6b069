// Package goredisstore keeps charges on Redis or Valkey through a client of
// [github.com/redis/go-redis/v9]: a single node, Sentinel, a Cluster or a Ring.
//
// The client stays the caller's: its pools, timeouts and credentials are used as they are, and it is
// never closed. [Tune] sets the options of a client that recovers quickly, and [Greet] makes errors say which server
// is silent or is not a Redis. Only one of the client's habits is set aside. go-redis sends a command again whose reply
// did not come in time; a decision that may have been made is not sent again, so a call is charged at most once whatever
// MaxRetries and MaxRedirects are. What has certainly not run still is: a MOVED or ASK of a cluster is followed, and a
// connection that cannot be made is tried again.
//
// go-redis reports that it cannot connect only after DialerRetries attempts, 5 by default and 100 ms apart. That outlasts
// most deadlines and the budget of failover, so a refused connection becomes "no answer". The error then says that the
// client has no connection (but not that of a Cluster). With Tune, which sets DialerRetries to 1, it says why. Greet
// alone suffices except for a Cluster.
//
// A call returns at its context's deadline. A client with ContextTimeoutEnabled sees to that itself, and
// closes the connection. On other clients the store waits beside go-redis, which takes a goroutine for a
// call that has a deadline, and leaves the connection open: it is free again when the reply comes or
// ReadTimeout passes. A cancellation without a deadline is noticed before a command is sent, and when
// the reply comes or ReadTimeout passes.
package goredisstore

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/sash/driver"
	"example.com/sash/redisstore"
)

// New returns a store that decides through a client. A nil opts is the default. New does no I/O. It panics if client
// is nil.
//
// On a Ring, subjects of one decision must have the same hash tag (see [sash.KeyTogether]) to be decided
// in one step; otherwise they are charged one after the other, as on a Cluster.
//
// With opts.Replicas, make the client with [Tune], or with MaintNotificationsConfig's Mode ModeDisabled, unless the
// server has these notifications (Redis Enterprise has): go-redis up to 9.23.0 turns them off at the first refusal
// of a server, and connections of which one is set aside for WAIT can do so at the same time, which is a data race.
func New(client redis.UniversalClient, opts *redisstore.Options) *redisstore.Store {
	if client == nil {
		panic("goredisstore: New needs a client, such as redis.NewClient returns")
	}
	s := &scripter{client: client}
	switch c := client.(type) {
	case *redis.Client:
		s.deadlines = c.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		s.cluster = true
		s.deadlines = c.Options().ContextTimeoutEnabled
	case *redis.Ring:
		s.cluster = true
		s.deadlines = c.Options().ContextTimeoutEnabled
	}
	return redisstore.New(s, opts)
}

// A scripter is a redisstore.Scripter.
type scripter struct {
	client    redis.UniversalClient
	cluster   bool
	deadlines bool // the client heeds the deadlines of contexts
}

// Unconnected implements [redisstore.Connector]. It does not know about Clusters: go-redis may wait for their state.
func (s *scripter) Unconnected() string {
	var addr string
	var attempts int
	switch c := s.client.(type) {
	case *redis.Client:
		if addr, attempts = c.Options().Addr, c.Options().DialerRetries; addr == behindSentinels {
			addr = "the primary"
		}
	case *redis.Ring:
		addr, attempts = "any shard", c.Options().DialerRetries
	default:
		return ""
	}
	if s.client.PoolStats().TotalConns > 0 {
		return ""
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
	if ring, ok := s.client.(*redis.Ring); ok && len(keys) > 1 {
		node, err := shard(ring, keys)
		if err != nil {
			return "", fmt.Errorf("goredisstore: %s: %w", script.Name, err)
		}
		return s.run(ctx, node, script, keys, arg)
	}
	return s.run(ctx, s.client, script, keys, arg)
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

// send sends one script and returns what came of it.
func (s *scripter) send(ctx context.Context, to processor, name, script string, keys []string, arg string) *redis.Cmd {
	args := make([]any, 0, 4+len(keys))
	args = append(args, name, script, len(keys))
	for _, key := range keys {
		args = append(args, key)
	}
	return s.process(ctx, to, append(args, arg)...)
}

// process sends one command, once. It returns the command with its reply, or another one with the context's
// error when that ended first.
func (s *scripter) process(ctx context.Context, to processor, args ...any) *redis.Cmd {
	if err := ctx.Err(); err != nil {
		return failed(ctx, err)
	}
	cmd := once{redis.NewCmd(ctx, args...)}
	deadline, ends := ctx.Deadline()
	if !ends || s.deadlines {
		_ = to.Process(ctx, cmd) // cmd has the error
	} else if err := beside(ctx, to, cmd); err != nil {
		return failed(ctx, err)
	}
	if cmd.Err() != nil && ends && !time.Now().Before(deadline) {
		<-ctx.Done() // a connection's deadline can be a moment ahead of its context's
		return failed(ctx, ctx.Err())
	}
	return cmd.Cmd
}

func failed(ctx context.Context, err error) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	cmd.SetErr(err)
	return cmd
}

// beside processes a command and returns nil, or the context's error when that ends first. The command
// is then still under way and must not be looked at.
func beside(ctx context.Context, to processor, cmd redis.Cmder) error {
	done := make(chan struct{})
	go func() {
		_ = to.Process(ctx, cmd) // cmd has the error
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// once is a command that is not sent again when it may have run.
type once struct{ *redis.Cmd }

// NoRetry makes every kind of client return the error instead of sending the command again.
func (once) NoRetry() bool { return true }

// Clone returns a copy that is not sent again either.
func (c once) Clone() redis.Cmder { return once{c.Cmd.Clone().(*redis.Cmd)} }
