package redisclient

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"example.com/sash/redisstore"
	"example.com/sash/service/internal/access"
)

const (
	shortestPause = 50 * time.Millisecond
	longestPause  = time.Second
)

// A dialer connects to servers. After a failure it pauses for that address, and doubles the pause with each failure, with jitter.
// During the pause, dialling the address fails at once. Then one caller at a time tries. It is safe for concurrent use.
type dialer struct {
	timeout time.Duration
	ended   context.Context // ends every attempt to connect
	dial    func(ctx context.Context, network, addr string) (net.Conn, error)

	opened, closed atomic.Uint64 // connections

	mu     sync.Mutex
	failed map[string]*failure // guarded by mu; by unreachable address
}

type counted struct {
	net.Conn
	once sync.Once
	by   *dialer
}

func (c *counted) Close() error {
	c.once.Do(func() { c.by.closed.Add(1) })
	return c.Conn.Close()
}

// A failure is the state of an unreachable address, or of a client that cannot connect.
type failure struct {
	err    error
	times  int
	until  time.Time
	trying bool // an attempt is in progress
}

func newDialer(timeout time.Duration, config *tls.Config) *dialer {
	plain := &net.Dialer{KeepAlive: 30 * time.Second}
	d := &dialer{timeout: timeout, ended: context.Background(), failed: make(map[string]*failure)}
	d.dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		return redisstore.Dial(ctx, addr, func(ctx context.Context) (net.Conn, error) {
			conn, err := plain.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			d.opened.Add(1)
			conn = &counted{Conn: conn, by: d}
			if config == nil {
				return conn, nil
			}
			return secure(ctx, conn, config, addr)
		})
	}
	return d
}

// Dial connects to an address.
func (d *dialer) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if err := d.admit(addr); err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	defer context.AfterFunc(d.ended, cancel)()
	conn, err := d.dial(limited, network, addr)
	d.report(addr, err, errors.Is(ctx.Err(), context.Canceled))
	return conn, err
}

func (d *dialer) admit(addr string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.failed[addr]
	if f == nil {
		return nil
	}
	if f.trying || time.Now().Before(f.until) {
		return fmt.Errorf("%w (not tried again yet)", f.err)
	}
	f.trying = true
	return nil
}

// report records the outcome of dialling an address. A caller that gave up does not count as a failure.
func (d *dialer) report(addr string, err error, gaveUp bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.failed[addr]
	switch {
	case err == nil:
		delete(d.failed, addr)
	case gaveUp:
		if f != nil {
			f.trying = false
		}
	default:
		if f == nil {
			f = &failure{}
			d.failed[addr] = f
		} else if !f.trying {
			return // it began before an earlier attempt failed
		}
		f.err, f.trying = err, false
		f.times++
		f.until = time.Now().Add(pause(f.times))
	}
}

// pause returns the pause after some failures: a random time from half to all of a duration that doubles each time.
func pause(times int) time.Duration {
	d := longestPause
	if times < 6 {
		d = min(d, shortestPause<<(times-1))
	}
	return d/2 + rand.N(d/2+1)
}

// addFiles adds the PEM files of the URL parameters to the TLS configuration of a URL, which is nil without TLS.
func addFiles(config *tls.Config, ca, cert, key string) error {
	switch {
	case ca+cert+key == "":
		return nil
	case config == nil:
		return errors.New("tls_ca, tls_cert and tls_key need TLS: use rediss:// instead of redis://")
	case (cert == "") != (key == ""):
		return errors.New("tls_cert and tls_key must be set together")
	}
	if err := access.Certify(config, ca, cert, key); err != nil {
		return fmt.Errorf("tls_ca, tls_cert and tls_key: %w", err)
	}
	return nil
}

// secure performs the TLS handshake on a connection. It expects the server name in the configuration, or else that in
// the address. On an error it closes the connection and returns a dialling error, because nothing was sent.
func secure(ctx context.Context, conn net.Conn, config *tls.Config, addr string) (net.Conn, error) {
	if config.ServerName == "" {
		config = config.Clone()
		if host, _, err := net.SplitHostPort(addr); err == nil {
			config.ServerName = host
		}
	}
	over := tls.Client(conn, config)
	err := over.HandshakeContext(ctx)
	if err == nil {
		return over, nil
	}
	if errors.Is(err, context.DeadlineExceeded) { // of dialling, not of a caller
		err = os.ErrDeadlineExceeded
	}
	_ = conn.Close()
	hint := " (is it a TLS port? redis:// does not use TLS)"
	if _, alert := errors.AsType[tls.AlertError](err); alert {
		hint = ""
	} else if _, wrong := errors.AsType[*tls.CertificateVerificationError](err); wrong {
		hint = " (set its authority with tls_ca=FILE, and use the host name of the certificate)"
	}
	err = fmt.Errorf("TLS handshake: %w%s", err, hint)
	return nil, &net.OpError{Op: "dial", Net: conn.RemoteAddr().Network(), Addr: conn.RemoteAddr(), Err: err}
}

// Node returns a client for one server, such as a replica, with the user and the parameters of c.
func (c *Client) Node(addr string) *Client {
	t := *c.target
	t.form, t.network, t.addrs = single, "tcp", []string{addr}
	return clientOf(&t)
}

// Sentinels returns a client for each Sentinel and the name of the primary that they watch, or none for other forms of URLs.
func (c *Client) Sentinels() (clients []*Client, master string) {
	if c.target.form != sentinel {
		return nil, ""
	}
	for _, addr := range c.target.addrs {
		t := *c.target
		t.form, t.network, t.addrs, t.db = single, "tcp", []string{addr}, 0
		t.user, t.password = t.sentinelUser, t.sentinelPassword
		clients = append(clients, clientOf(&t))
	}
	return clients, c.target.master
}

// Database returns the number of the database.
func (c *Client) Database() int { return c.target.db }

// Slots is a range of slots of a Cluster, and the addresses of the servers that hold it, the primary first.
type Slots struct {
	First, Last int
	Nodes       []string
}

// Slots returns the slots of a Cluster. Redis 6.2 has no CLUSTER SHARDS.
func (c *Client) Slots(ctx context.Context) (all []Slots, err error) {
	reply, err := c.Do(ctx, func(b rueidis.Builder) rueidis.Completed { return b.ClusterSlots().Build() })
	if err != nil {
		return nil, err
	}
	ranges, err := reply.ToArray()
	for _, one := range ranges {
		fields, _ := one.ToArray()
		if len(fields) < 2 {
			return nil, fmt.Errorf("unexpected answer to CLUSTER SLOTS: %v", one.String())
		}
		first, _ := fields[0].AsInt64()
		last, _ := fields[1].AsInt64()
		s := Slots{First: int(first), Last: int(last)}
		for _, node := range fields[2:] {
			parts, _ := node.ToArray()
			if len(parts) < 2 {
				continue
			}
			host, _ := parts[0].ToString()
			if host == "" { // the node does not know its own address
				host, _, _ = net.SplitHostPort(c.target.addrs[0])
			}
			port, _ := parts[1].AsInt64()
			s.Nodes = append(s.Nodes, net.JoinHostPort(host, strconv.FormatInt(port, 10)))
		}
		all = append(all, s)
	}
	return all, err
}

// Primaries calls f for each primary in turn, until f returns an error. Behind Sentinels the address is "the primary".
func (c *Client) Primaries(ctx context.Context, f func(addr string, primary *Client) error) error {
	switch c.target.form {
	case sentinel:
		return f("the primary", c)
	case single:
		return f(c.target.addrs[0], c)
	}
	slots, err := c.Slots(ctx)
	if err != nil {
		return err
	}
	seen := make(map[string]bool)
	for _, s := range slots {
		if len(s.Nodes) == 0 || seen[s.Nodes[0]] {
			continue
		}
		seen[s.Nodes[0]] = true
		node := c.Node(s.Nodes[0])
		err := f(s.Nodes[0], node)
		node.Close()
		if err != nil {
			return err
		}
	}
	return nil
}
