// Package rueidisstore keeps charges on Redis or Valkey through a client of
// [github.com/redis/rueidis]: a single node, Sentinel or a Cluster.
//
// The client stays the caller's: its connections, timeouts and credentials are used as they are, and it is never
// closed. [Tune] sets the options of a client that recovers quickly. Calls that go on at the same time share a
// connection, in one pipeline. rueidis resends only commands that are marked as harmless to repeat, and decisions are not
// marked. So a call whose reply is lost is charged at most once. rueidis follows a MOVED or ASK of a cluster, where nothing
// has run.
//
// One option of rueidis breaks that promise: ClientOption.ConnLifetime. When a connection reaches its
// lifetime and the server has not answered for a second more, rueidis resends the commands in flight,
// marked or not. Leave the option zero on a client that decides.
package rueidisstore

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"example.com/sash/driver"
	"example.com/sash/redisstore"
)

// New returns a store that decides through a client. A nil opts is the default. New does no I/O. It panics if client
// is nil.
func New(client rueidis.Client, opts *redisstore.Options) *redisstore.Store {
	return redisstore.New(Scripter(client), opts)
}

// Scripter returns the Scripter of New's store, for a store that is made before its client. It panics if client is nil.
func Scripter(client rueidis.Client) redisstore.Waiter {
	if driver.Nil(client) {
		panic("rueidisstore: New needs a client, such as rueidis.NewClient returns")
	}
	return &scripter{client: client}
}

type scripter struct{ client rueidis.Client }

// Cluster reports whether the keys of one script must be in one slot. rueidis panics when they are not.
func (s *scripter) Cluster() bool { return s.client.Mode() == rueidis.ClientModeCluster }

// Run runs a script.
func (s *scripter) Run(ctx context.Context, script *redisstore.Script, keys []string, arg string) (string, error) {
	return run(ctx, s.client, script, keys, arg)
}

func run(ctx context.Context, to rueidis.CoreClient, script *redisstore.Script, keys []string, arg string) (string, error) {
	reply, err := send(ctx, to, "EVALSHA", script.SHA1, keys, arg)
	if failed, ok := rueidis.IsRedisErr(err); ok && failed.IsNoScript() { // it did not run
		reply, err = send(ctx, to, "EVAL", script.Text, keys, arg)
	}
	if err != nil {
		return "", fmt.Errorf("rueidisstore: %s: %w", script.Name, err)
	}
	return reply, nil
}

// send sends one command. The command must not be marked as one that can be resent.
func send(ctx context.Context, to rueidis.CoreClient, name, script string, keys []string, arg string) (string, error) {
	cmd := to.B().Arbitrary(name, script, strconv.Itoa(len(keys))).Keys(keys...).Args(arg).Build()
	reply, err := to.Do(ctx, cmd).ToString()
	return reply, ended(ctx, err)
}

// ended returns the context's error in place of an error that came after the context's deadline.
func ended(ctx context.Context, err error) error {
	if deadline, ok := ctx.Deadline(); err != nil && ok && !time.Now().Before(deadline) {
		<-ctx.Done() // a connection's deadline can be a moment ahead of its context's
		return ctx.Err()
	}
	return err
}

// RunWait implements redisstore.Waiter. Both commands share a connection of their own, because WAIT counts only
// writes of its own connection. On a cluster a MOVED or ASK, where nothing has run, is an error.
func (s *scripter) RunWait(ctx context.Context, script *redisstore.Script, keys []string, arg string, wait redisstore.Wait) (reply string, confirmed int64, err error) {
	err = s.client.Dedicated(func(conn rueidis.DedicatedClient) error {
		if reply, err = run(ctx, conn, script, keys, arg); err != nil || !wait.For(reply) {
			return err
		}
		cmd := conn.B().Arbitrary("WAIT", strconv.Itoa(wait.Replicas), strconv.FormatInt(wait.Timeout.Milliseconds(), 10)).Build()
		confirmed, err = conn.Do(ctx, cmd).AsInt64()
		if err = ended(ctx, err); err != nil {
			return fmt.Errorf("rueidisstore: WAIT after %s: %w", script.Name, err)
		}
		return nil
	})
	return reply, confirmed, err
}

// Tune sets the options that a client needs to recover quickly from a connection or a server that fails, and returns
// the result:
//
//	client, err := rueidis.NewClient(rueidisstore.Tune(rueidis.ClientOption{InitAddress: []string{"localhost:6379"}}))
//
// It keeps every option that is not zero, and touches nothing else, such as addresses, TLS and credentials.
//
//   - ConnWriteTimeout is 1 s: a call waits that long for its answer, and so does the PING that tests a silent
//     connection. The default is 10 s, for which every call on a connection that fell silent fails.
//   - Dialer.KeepAlive is 500 ms, after which a PING tests a silent connection. The default is 1 s.
//   - Dialer.Timeout is 1 s, for connecting. Sentinel.Dialer.Timeout is at most 500 ms, because hanging Sentinels are
//     tried one after the other. The defaults are 5 s.
//   - Sentinel.TopologyRefreshInterval is 2 s: a Sentinel is asked for the primary that often, in case its announcement
//     was missed. The default is never.
//   - ClusterOption.ShardsRefreshInterval is 1 s, which bounds for how long calls go to a node of a Cluster that another
//     one has replaced. The default is to notice it by failed calls only.
//   - ClusterOption.MaxMovedRedirections is 5. The default is to follow MOVED and ASK without end.
//   - DialCtxFn, if DialFn is nil too, connects through [redisstore.Dial]: the error of a wrong address says what answers
//     there, and [redisstore.Silent] names servers that do not answer.
func Tune(opts rueidis.ClientOption) rueidis.ClientOption {
	opts.ConnWriteTimeout = cmp.Or(opts.ConnWriteTimeout, time.Second)
	opts.Dialer.KeepAlive = cmp.Or(opts.Dialer.KeepAlive, 500*time.Millisecond)
	opts.Dialer.Timeout = cmp.Or(opts.Dialer.Timeout, time.Second)
	opts.Sentinel.Dialer.KeepAlive = cmp.Or(opts.Sentinel.Dialer.KeepAlive, opts.Dialer.KeepAlive)
	opts.Sentinel.Dialer.Timeout = cmp.Or(opts.Sentinel.Dialer.Timeout, min(500*time.Millisecond, opts.Dialer.Timeout))
	opts.Sentinel.TopologyRefreshInterval = cmp.Or(opts.Sentinel.TopologyRefreshInterval, 2*time.Second)
	opts.ClusterOption.ShardsRefreshInterval = cmp.Or(opts.ClusterOption.ShardsRefreshInterval, time.Second)
	opts.ClusterOption.MaxMovedRedirections = cmp.Or(opts.ClusterOption.MaxMovedRedirections, 5)
	if opts.DialCtxFn == nil && opts.DialFn == nil {
		opts.DialCtxFn = dial
	}
	return opts
}

// dial connects as rueidis does by itself, but through redisstore.Dial. rueidis ends the process when a server sends more
// replies than it received commands, as a server of another kind can.
func dial(ctx context.Context, addr string, d *net.Dialer, config *tls.Config) (net.Conn, error) {
	if d.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d.Timeout)
		defer cancel()
	}
	connect := d.DialContext
	if config != nil {
		connect = (&tls.Dialer{NetDialer: d, Config: config}).DialContext
	}
	return redisstore.Dial(ctx, addr, func(ctx context.Context) (net.Conn, error) { return connect(ctx, "tcp", addr) })
}
