// Package redisclient creates Redis clients from a URL: for one server, for a primary that Sentinel watches, or for a
// Cluster. A [Client] has one connection to each server, on which concurrent calls travel together.
//
// A client notices a failover within five seconds. It reads the nodes of a Cluster every second or two. Sentinel announces
// a new primary, and the client also queries Sentinel every two seconds. After half a second of silence on a connection,
// the client sends a PING, and drops the connection if there is no answer within a second. If a single server reports that
// it has become a replica, the client reconnects, because the server's name may now resolve to another address.
//
// After a failed connection the client retries, with a growing pause and jitter, so that a server that comes back does not
// face all clients at once. During the pause, calls fail at once.
package redisclient

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"example.com/sash/redisstore"
	"example.com/sash/rueidisstore"
)

// A Client decides on the Redis of a URL. It is safe for concurrent use.
//
// rueidis connects when it creates a client, and creates none for Sentinel or a Cluster if it cannot connect. So the
// first call that needs the rueidis client creates it. Later calls retry after a pause until one succeeds.
type Client struct {
	target *target
	option rueidis.ClientOption
	dialer *dialer
	stop   context.CancelFunc // ends connecting
	work   sync.WaitGroup     // of goroutines that open and close connections

	conn atomic.Pointer[connection] // nil while not connected

	mu         sync.Mutex
	connecting *attempt // guarded by mu: the attempt in progress, or nil
	closed     bool     // guarded by mu
}

type connection struct {
	client  rueidis.Client
	scripts redisstore.Waiter
	since   time.Time
}

// New returns a client for a Redis URL, or host:port. It does not connect: Redis may be down.
func New(url string) (*Client, error) {
	t, err := parse(url)
	if err != nil {
		return nil, err
	}
	return clientOf(t), nil
}

// Far is New for a distant server. By default dial_timeout is 5 s, enough for TLS across an ocean, and read_timeout is 3 s.
func Far(url string) (*Client, error) {
	t, err := parse(url)
	if err != nil {
		return nil, err
	}
	t.dial = cmp.Or(t.dial, farDial)
	c := clientOf(t)
	c.option.ConnWriteTimeout = cmp.Or(t.read, farRead)
	return c, nil
}

// Hold makes the client wait for longer than a budget. Otherwise it could drop a connection, with all its calls,
// within the budget. The error says that the URL has a shorter read_timeout. Call Hold before the client is used.
func (c *Client) Hold(budget time.Duration) error {
	if c.target.read == 0 {
		c.option.ConnWriteTimeout = max(c.option.ConnWriteTimeout, budget+heldFor)
	} else if c.target.read <= budget {
		return fmt.Errorf("the URL of Redis has read_timeout=%v, after which the client drops the connection with all calls on it, "+
			"and the budget is %v: give a read_timeout above the budget, or none", c.target.read, budget)
	}
	return nil
}

const heldFor = 500 * time.Millisecond

const (
	farDial = 5 * time.Second
	farRead = 3 * time.Second
)

func clientOf(t *target) *Client {
	ctx, stop := context.WithCancel(context.Background())
	option := t.option()
	dial := newDialer(option.Dialer.Timeout, t.tls)
	dial.ended = ctx
	option.DialCtxFn = func(ctx context.Context, addr string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
		return dial.Dial(ctx, t.network, addr)
	}
	return &Client{target: t, option: option, dialer: dial, stop: stop}
}

// Connections returns how many connections the client has opened, and how many of these are closed.
func (c *Client) Connections() (opened, closed uint64) {
	closed = c.dialer.closed.Load() // read first, so that it never exceeds opened
	return c.dialer.opened.Load(), closed
}

// String returns the address for messages, never with the password.
func (c *Client) String() string { return c.target.String() }

// Store returns a store that decides through the client. Nil opts means the default.
func (c *Client) Store(opts *redisstore.Options) *redisstore.Store { return redisstore.New(c, opts) }

// Detached returns a store for a caller that may stop waiting, such as [example.com/sash/failover]. A call continues
// after its context ends, until it gets an answer or the connection fails, which takes a few seconds at most.
//
// All calls share the connection. With Store, a call that opens the connection, or is alone on it, would close it for
// all when its budget is spent. A budget may be too short for connecting over a network.
func (c *Client) Detached(opts *redisstore.Options) *redisstore.Store {
	return c.Observed(opts, func(error) {})
}

// Observed is like Detached, and calls note with the error of each call when it ends. Note must not block.
func (c *Client) Observed(opts *redisstore.Options, note func(error)) *redisstore.Store {
	return redisstore.New(detached{c, note}, opts)
}

// Run implements [redisstore.Scripter].
func (c *Client) Run(ctx context.Context, script *redisstore.Script, keys []string, arg string) (string, error) {
	m, err := c.get(ctx)
	if err != nil {
		return "", err
	}
	reply, err := m.scripts.Run(ctx, script, keys, arg)
	return reply, c.noticeReplica(ctx, m, err)
}

// RunWait implements [redisstore.Waiter].
func (c *Client) RunWait(ctx context.Context, script *redisstore.Script, keys []string, arg string, wait redisstore.Wait) (string, int64, error) {
	m, err := c.get(ctx)
	if err != nil {
		return "", 0, err
	}
	reply, confirmed, err := m.scripts.RunWait(ctx, script, keys, arg, wait)
	return reply, confirmed, c.noticeReplica(ctx, m, err)
}

// Cluster implements [redisstore.Scripter].
func (c *Client) Cluster() bool { return c.target.form == cluster }

// Do runs the command that build returns. On a Cluster, a command without a key goes to any node.
func (c *Client) Do(ctx context.Context, build func(rueidis.Builder) rueidis.Completed) (rueidis.RedisMessage, error) {
	m, err := c.get(ctx)
	if err != nil {
		return rueidis.RedisMessage{}, err
	}
	reply, err := m.client.Do(ctx, build(m.client.B())).ToMessage()
	return reply, c.noticeReplica(ctx, m, err)
}

// Ping returns an error if Redis does not answer. On a Cluster it asks one of the nodes.
func (c *Client) Ping(ctx context.Context) error {
	_, err := c.Do(ctx, func(b rueidis.Builder) rueidis.Completed { return b.Ping().Build() })
	return err
}

// Time returns the server's time. On a Cluster it asks one of the nodes.
func (c *Client) Time(ctx context.Context) (time.Time, error) {
	reply, err := c.Do(ctx, func(b rueidis.Builder) rueidis.Completed { return b.Time().Build() })
	if err != nil {
		return time.Time{}, err
	}
	said, err := reply.AsIntSlice()
	if err == nil && len(said) != 2 {
		err = fmt.Errorf("unexpected answer to TIME: %v", said)
	}
	if err != nil {
		return time.Time{}, err
	}
	return time.Unix(said[0], said[1]*int64(time.Microsecond)), nil
}

// Close closes the connections. Calls in flight have a second to finish. On a Cluster, a background goroutine
// of rueidis may remain for five seconds at most.
func (c *Client) Close() {
	c.mu.Lock()
	c.closed = true
	m := c.conn.Swap(nil)
	c.mu.Unlock()
	c.stop()
	if m != nil {
		m.client.Close()
	}
	c.work.Wait()
}

func (c *Client) get(ctx context.Context) (*connection, error) {
	if m := c.conn.Load(); m != nil {
		return m, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c.mu.Lock()
	m, a := c.conn.Load(), c.connecting
	if m == nil && a == nil && !c.closed {
		a = &attempt{done: make(chan struct{})}
		c.connecting = a
		c.work.Go(func() { c.attempt(a) })
	}
	c.mu.Unlock()
	switch {
	case m != nil:
		return m, nil
	case a == nil:
		return nil, &unconnected{rueidis.ErrClosing}
	}
	select {
	case <-a.done:
		return a.conn, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// An attempt is one attempt to connect, shared by all callers that wait for it.
type attempt struct {
	done chan struct{} // closed when there is conn or err
	conn *connection
	err  error
}

// attempt connects, unless a pause is in effect. A failed dial starts the dialer's pause; any other failure pauses the client.
func (c *Client) attempt(a *attempt) {
	defer close(a.done)
	var client rueidis.Client
	err := c.dialer.admit("")
	if err == nil {
		client, err = connect(c.option)
		dialled := !dialling(err)
		err = hideContextError(context.Background(), err)
		c.dialer.report("", err, !dialled)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch c.connecting = nil; {
	case err != nil:
		a.err = &unconnected{err}
	case c.closed:
		c.work.Go(client.Close)
		a.err = &unconnected{rueidis.ErrClosing}
	default:
		a.conn = &connection{client, rueidisstore.Scripter(client), time.Now()}
		c.conn.Store(a.conn)
	}
}

func connect(option rueidis.ClientOption) (client rueidis.Client, err error) {
	defer func() {
		if p := recover(); p != nil { // an unexpected answer
			client, err = nil, fmt.Errorf("connecting: %v", p)
		}
	}()
	client, err = rueidis.NewClient(option)
	if err != nil && client != nil {
		client.Close()
		client = nil
	}
	return client, err
}

func dialling(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// noticeReplica returns the error of a call. If a single server has become a replica, it drops the connection to it.
func (c *Client) noticeReplica(ctx context.Context, m *connection, err error) error {
	if err == nil || c.target.form != single || time.Since(m.since) < longestPause || !readOnly(err) {
		return hideContextError(ctx, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed && c.conn.CompareAndSwap(m, nil) {
		c.work.Go(m.client.Close)
	}
	return err
}

// hideContextError hides errors of the contexts with which rueidis connects: they must not look like the caller's.
func hideContextError(ctx context.Context, err error) error {
	switch {
	case err == nil, ctx.Err() != nil, dialling(err): // a dialling error already says what it is
		return err
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("connecting: %w", os.ErrDeadlineExceeded)
	case errors.Is(err, context.Canceled):
		return errors.New("connecting: " + err.Error())
	}
	return err
}

func readOnly(err error) bool {
	said, ok := errors.AsType[*rueidis.RedisError](err)
	return ok && (strings.HasPrefix(said.Error(), "READONLY") || strings.Contains(said.Error(), ": -READONLY ")) // 6.2 within a script
}

// An unconnected is the reason for a missing connection. It looks like a dialling error, because nothing was sent.
type unconnected struct{ err error }

func (e *unconnected) Error() string { return e.err.Error() }
func (e *unconnected) Unwrap() error { return e.err }

// As implements the method that errors.As calls.
func (e *unconnected) As(target any) bool {
	op, ok := target.(**net.OpError)
	if ok {
		*op = &net.OpError{Op: "dial", Net: "redis", Err: e.err}
	}
	return ok
}

// detached runs scripts to their end even if the context ends meanwhile.
type detached struct {
	*Client
	note func(error)
}

func (d detached) Run(ctx context.Context, script *redisstore.Script, keys []string, arg string) (reply string, err error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	defer func() { d.note(err) }()
	return d.Client.Run(context.WithoutCancel(ctx), script, keys, arg)
}

func (d detached) RunWait(
	ctx context.Context, script *redisstore.Script, keys []string, arg string, wait redisstore.Wait,
) (reply string, confirmed int64, err error) {
	if err := ctx.Err(); err != nil {
		return "", 0, err
	}
	defer func() { d.note(err) }()
	return d.Client.RunWait(context.WithoutCancel(ctx), script, keys, arg, wait)
}
