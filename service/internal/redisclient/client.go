package redisclient

import (
	"context"
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

// A Client decides on the Redis of a URL. What it is asked at the same time travels together, over one
// connection to each server. It is safe for concurrent use.
//
// rueidis connects when a client of it is made, and where it cannot there is none for Sentinel or a Cluster. So
// that is done by the first call that needs it, and again after a pause until it works.
type Client struct {
	target *target
	option rueidis.ClientOption
	stop   context.CancelFunc // ends connecting
	work   sync.WaitGroup     // of goroutines that make and close clients

	made atomic.Pointer[made] // nil while there is none

	mu     sync.Mutex
	try    *attempt // guarded by mu: the last one, nil after one that succeeded
	closed bool     // guarded by mu
}

// A made is a client of rueidis.
type made struct {
	client  rueidis.Client
	scripts redisstore.Waiter
	since   time.Time
}

// An attempt is one to make a client.
type attempt struct {
	times int           // that have failed in a row, with this one
	done  chan struct{} // closed when the rest is there
	made  *made
	err   error
	again time.Time // when to try again
}

// New returns a client for a Redis URL, or a plain host:port. It does not connect, so it works while Redis does
// not.
func New(url string) (*Client, error) {
	t, err := parse(url)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	dial := newDialer(or(t.opts.DialTimeout, timeout), t.tls)
	dial.ended = ctx
	return &Client{target: t, option: t.option(dial), stop: stop}, nil
}

// String returns the address for messages, which never has the password.
func (c *Client) String() string { return c.target.String() }

// Store returns a store that decides through the client. A nil opts is the default.
func (c *Client) Store(opts *redisstore.Options) *redisstore.Store { return redisstore.New(c, opts) }

// Detached is Store for a caller that does not wait for the store, such as [example.com/sash/failover]: a call goes on
// when its context ends, until there is an answer or the connection is given up, which takes a few seconds at most.
//
// The connection is everybody's. Who makes it, or is alone on it, would otherwise break it off for all when
// a budget is spent, and a budget may be too short for connecting over a network.
func (c *Client) Detached(opts *redisstore.Options) *redisstore.Store {
	return redisstore.New(detached{c}, opts)
}

// Run implements [redisstore.Scripter].
func (c *Client) Run(ctx context.Context, script *redisstore.Script, keys []string, arg string) (string, error) {
	m, err := c.get(ctx)
	if err != nil {
		return "", err
	}
	reply, err := m.scripts.Run(ctx, script, keys, arg)
	return reply, c.heed(ctx, m, err)
}

// RunWait implements [redisstore.Waiter].
func (c *Client) RunWait(ctx context.Context, script *redisstore.Script, keys []string, arg string, wait redisstore.Wait) (string, int64, error) {
	m, err := c.get(ctx)
	if err != nil {
		return "", 0, err
	}
	reply, confirmed, err := m.scripts.RunWait(ctx, script, keys, arg, wait)
	return reply, confirmed, c.heed(ctx, m, err)
}

// Cluster implements [redisstore.Scripter].
func (c *Client) Cluster() bool { return c.target.form == cluster }

// Ping returns an error when Redis does not answer: one of its nodes, of a Cluster.
func (c *Client) Ping(ctx context.Context) error {
	m, err := c.get(ctx)
	if err != nil {
		return err
	}
	return c.heed(ctx, m, m.client.Do(ctx, m.client.B().Ping().Build()).Error())
}

// Time returns the server's time: that of one of its nodes, of a Cluster.
func (c *Client) Time(ctx context.Context) (time.Time, error) {
	m, err := c.get(ctx)
	if err != nil {
		return time.Time{}, err
	}
	said, err := m.client.Do(ctx, m.client.B().Time().Build()).AsIntSlice()
	if err != nil {
		return time.Time{}, err
	}
	if len(said) != 2 {
		return time.Time{}, fmt.Errorf("%v is not an answer to TIME", said)
	}
	return time.Unix(said[0], said[1]*int64(time.Microsecond)), nil
}

// Close ends the connections. Calls under way have a second to be answered. Of a Cluster it leaves what rueidis has put off, which
// sleeps for five seconds at most and ends.
func (c *Client) Close() {
	c.mu.Lock()
	c.closed = true
	m := c.made.Swap(nil)
	c.mu.Unlock()
	c.stop()
	if m != nil {
		m.client.Close()
	}
	c.work.Wait()
}

// get returns the client of rueidis, which it may have to wait for.
func (c *Client) get(ctx context.Context) (*made, error) {
	if m := c.made.Load(); m != nil {
		return m, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c.mu.Lock()
	if m := c.made.Load(); m != nil || c.closed {
		c.mu.Unlock()
		if m == nil {
			return nil, &unmade{rueidis.ErrClosing}
		}
		return m, nil
	}
	a := c.try
	switch {
	case a == nil:
		a = c.begin(1)
	case a.over() && time.Now().Before(a.again):
		c.mu.Unlock()
		return nil, &unmade{fmt.Errorf("%w (not tried again yet)", a.err)}
	case a.over():
		a = c.begin(a.times + 1)
	}
	c.mu.Unlock()
	select {
	case <-a.done:
		return a.made, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// begin begins an attempt. The caller holds mu.
func (c *Client) begin(times int) *attempt {
	a := &attempt{times: times, done: make(chan struct{})}
	c.try = a
	c.work.Go(func() { c.attempt(a) })
	return a
}

func (a *attempt) over() bool {
	select {
	case <-a.done:
		return true
	default:
		return false
	}
}

// attempt makes a client.
func (c *Client) attempt(a *attempt) {
	client, err := connect(c.option)
	if err != nil {
		a.err = &unmade{own(context.Background(), err)}
		if !dialling(err) { // the dialer pauses by itself
			a.again = time.Now().Add(pause(a.times))
		}
	} else {
		a.made = &made{client, rueidisstore.Scripter(client), time.Now()}
	}
	c.mu.Lock()
	switch {
	case err != nil:
	case c.closed:
		a.made, a.err = nil, &unmade{rueidis.ErrClosing}
	default:
		c.made.Store(a.made)
		c.try = nil
	}
	c.mu.Unlock()
	close(a.done)
	if err == nil && a.made == nil {
		client.Close()
	}
}

// connect makes a client that has connected, or none.
func connect(option rueidis.ClientOption) (client rueidis.Client, err error) {
	defer func() {
		if p := recover(); p != nil { // an answer that it did not expect
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

// dialling reports whether an error is of a connection that could not be made.
func dialling(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// heed looks at an error and returns it. A server that has become a replica is the wrong one: with Sentinel or a Cluster rueidis
// finds out which is the right one, and the name of a single server may have another address now.
func (c *Client) heed(ctx context.Context, m *made, err error) error {
	if err == nil || c.target.form != single || time.Since(m.since) < longestPause || !readOnly(err) {
		return own(ctx, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed && c.made.CompareAndSwap(m, nil) {
		c.work.Go(m.client.Close)
	}
	return err
}

// own returns an error that does not pass for the end of the caller's context unless it is that: rueidis has
// contexts too, with which it connects.
func own(ctx context.Context, err error) error {
	switch {
	case err == nil, ctx.Err() != nil, dialling(err): // the last one says what it is
		return err
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("connecting: %w", os.ErrDeadlineExceeded)
	case errors.Is(err, context.Canceled):
		return errors.New("connecting: " + err.Error())
	}
	return err
}

func readOnly(err error) bool {
	var said *rueidis.RedisError
	return errors.As(err, &said) && strings.HasPrefix(said.Error(), "READONLY")
}

// An unmade is why there is no client. It passes for an error of dialling, which it is mostly: nothing was sent.
type unmade struct{ err error }

func (e *unmade) Error() string { return e.err.Error() }
func (e *unmade) Unwrap() error { return e.err }

// As is for errors.As.
func (e *unmade) As(target any) bool {
	op, ok := target.(**net.OpError)
	if ok {
		*op = &net.OpError{Op: "dial", Net: "redis", Err: e.err}
	}
	return ok
}

// detached runs scripts whatever becomes of the context, unless that is over already.
type detached struct{ *Client }

func (d detached) Run(ctx context.Context, script *redisstore.Script, keys []string, arg string) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	return d.Client.Run(context.WithoutCancel(ctx), script, keys, arg)
}

func (d detached) RunWait(ctx context.Context, script *redisstore.Script, keys []string, arg string, wait redisstore.Wait) (string, int64, error) {
	if err := ctx.Err(); err != nil {
		return "", 0, err
	}
	return d.Client.RunWait(context.WithoutCancel(ctx), script, keys, arg, wait)
}
