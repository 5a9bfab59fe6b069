// Package conns ends the connections of a port without losing a request, and bounds how many are open.
//
// Closing a listener resets the connections that wait in its queue, and closing an idle connection fails a request
// that a client sends at that moment. So a Listener that stops first accepts the waiting connections. It closes an
// idle connection only when nothing has arrived on it for some time. HTTP/2 ends its connections by itself.
package conns

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"math"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"example.com/sash/service/internal/access"
	"example.com/sash/service/internal/throttle"
)

// Times of a listener that stops.
const (
	stopTime  = 2 * time.Second // for all connections that wait
	lookEvery = 20 * time.Millisecond
)

// A Listener hands out connections of type *Conn, which it knows while they are open.
type Listener struct {
	net.Listener

	stopping atomic.Bool

	bounds Bounds
	full   throttle.Log

	mu   sync.Mutex
	open map[net.Addr]*Conn // guarded by mu: by the address of the client, which is one pointer for each connection
}

// Listen listens on host:port, or on the path of unix:///path.
func Listen(ctx context.Context, addr string) (net.Listener, error) {
	var config net.ListenConfig
	path, local := strings.CutPrefix(addr, "unix://")
	if !local {
		return config.Listen(ctx, "tcp", addr)
	}
	if info, err := os.Stat(path); err == nil && info.Mode().Type() == os.ModeSocket {
		_ = os.Remove(path) // left by a process that was killed; one that is alive keeps its connections
	}
	return config.Listen(ctx, "unix", path)
}

// New returns a listener over one of Listen.
func New(listener net.Listener, bounds Bounds) *Listener {
	bounds.Open = cmp.Or(bounds.Open, new(atomic.Int64))
	return &Listener{
		Listener: listener, bounds: bounds, full: throttle.Log{To: bounds.Log, Every: time.Minute}, open: make(map[net.Addr]*Conn),
	}
}

// Accept returns the next connection. After Stop it returns those that wait, and then net.ErrClosed.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.next()
		if err != nil {
			return nil, err
		}
		if c := l.admit(conn); c != nil {
			return c, nil
		}
	}
}

func (l *Listener) next() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if l.stopping.Load() {
		if errors.Is(err, os.ErrDeadlineExceeded) { // the deadline may have passed before the last look at the queue
			l.acceptWithin(lookTime)
			conn, err = l.Listener.Accept()
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			_ = l.Close()
			return nil, net.ErrClosed
		}
		l.acceptWithin(lookTime)
	}
	return conn, err
}

// Serve runs accept until it fails, and returns its error. If the context ends first, Serve stops the listener, and
// returns nil when accept has taken all waiting connections.
func (l *Listener) Serve(ctx context.Context, accept func() error) error {
	failed := make(chan error, 1)
	go func() { failed <- accept() }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	l.Stop()
	if err := <-failed; !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// Stop makes Accept return the connections that wait, and then closes the listener, after two seconds at most. A
// client that connects at the moment of the close is disconnected. Connections that find no room at the bound
// meanwhile are closed. A Unix socket loses its path at once.
func (l *Listener) Stop() {
	if local, ok := l.Listener.(*net.UnixListener); ok {
		local.SetUnlinkOnClose(false) // the path may be another listener's by then
		_ = os.Remove(local.Addr().String())
	}
	l.stopping.Store(true)
	time.AfterFunc(stopTime, func() { _ = l.Close() })
	l.acceptWithin(lookTime)
}

func (l *Listener) acceptWithin(d time.Duration) {
	timed, ok := l.Listener.(interface{ SetDeadline(time.Time) error })
	if !ok || timed.SetDeadline(time.Now().Add(d)) != nil {
		_ = l.Close()
	}
}

// Finish returns when no connection is open. It closes connections on which nothing has been sent or received for
// quiet, counted from now, except those that answer a request (Begin) or have Streams. If the context ends first,
// Finish returns its error.
func (l *Listener) Finish(ctx context.Context, quiet time.Duration) error {
	began := time.Now()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		silent := time.Now().Add(-quiet)
		l.mu.Lock()
		open := slices.Collect(maps.Values(l.open))
		l.mu.Unlock()
		left := 0
		for _, c := range open {
			if !c.streams.Load() {
				left++
				if silent.After(began) {
					c.retire(silent)
				}
			}
		}
		if left == 0 {
			return nil
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Of returns the open connection whose RemoteAddr returned this address, or nil.
func (l *Listener) Of(client net.Addr) *Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open[client]
}

// Bounds of the connections that a Listener has open.
type Bounds struct {
	// Max is the most connections. At the bound, a new connection replaces one of the address with the most: one that
	// waits for no answer, or else any. If the new connection has the same address and none is idle, the new one is
	// closed. An IPv6 address counts as its /64. Zero is no bound.
	Max  int
	Open *atomic.Int64 // how many connections are open, which the listener counts; may be nil
	Log  *slog.Logger  // gets a warning at the bound, at most once a minute; nil is slog.Default
}

// admit returns the connection if there is room for it. Otherwise it closes the connection and returns nil.
func (l *Listener) admit(conn net.Conn) *Conn {
	c := &Conn{Conn: conn, from: l, last: time.Now(), party: access.Party(conn.RemoteAddr().String())}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bounds.Max > 0 && len(l.open) >= l.bounds.Max {
		l.full.Log(slog.LevelWarn,
			"all connections of the port are in use: a new one takes the place of one that is idle or of the address with most, or is closed",
			"addr", l.Addr().String(), "connections", l.bounds.Max)
		victim := l.victim(c.party)
		if victim == nil {
			_ = conn.Close()
			return nil
		}
		l.forget(victim)
		_ = victim.Conn.Close()
	}
	l.open[c.RemoteAddr()] = c
	l.bounds.Open.Add(1)
	return c
}

// victim returns the connection that a new one from an address replaces, or nil. Of the address with the most, it takes the one idle
// for longest, or else any unless the address is the same. If no address has two, it takes any idle connection. The caller holds mu.
func (l *Listener) victim(party string) (victim *Conn) {
	held := make(map[string]int)
	for _, other := range l.open {
		held[other.party]++
	}
	greedy, most := party, max(held[party], 1)
	for other, n := range held {
		if n > max(most, held[party]+1) {
			greedy, most = other, n
		}
	}
	var longest time.Time
	var busy *Conn
	for _, other := range l.open { // in random order
		if most > 1 && other.party != greedy {
			continue
		}
		if last, idle := other.idle(); idle && (victim == nil || last.Before(longest)) {
			victim, longest = other, last
		} else if greedy != party {
			busy = other
		}
	}
	return cmp.Or(victim, busy)
}

// forget frees the place of a connection, once. The caller holds mu.
func (l *Listener) forget(c *Conn) {
	if l.open[c.RemoteAddr()] == c {
		delete(l.open, c.RemoteAddr())
		l.bounds.Open.Add(-1)
	}
}

// Shares divides the descriptors of the process. Up to a quarter, and 256, are kept for Redis and for files. Up to an
// eighth, and 128, are for the connections of the admin port. Each data port has an equal part of the rest, up to
// most.
func Shares(ports, most int) (data, admin int) { return shares(descriptors(), ports, most) }

func shares(descriptors uint64, ports, most int) (data, admin int) {
	limit := int(min(descriptors, math.MaxInt32))
	kept, admin := min(256, limit/4), min(128, limit/8)
	return min(most, (limit-kept-admin)/ports), admin
}

// lookTime is how long the last look for a request takes.
const lookTime = time.Millisecond

// A Conn is a connection of a Listener. It knows when something was last sent or received.
type Conn struct {
	net.Conn
	from    *Listener
	party   string // see Party
	streams atomic.Bool

	mu       sync.Mutex
	last     time.Time // guarded by mu: when a byte was sent or received
	busy     int       // guarded by mu: requests that are being answered
	retiring bool      // guarded by mu: the next Read without a byte is the last
	deadline time.Time // guarded by mu: for Read, as the server chose it
}

// Begin says that the server has begun to answer a request. The connection is not closed until End.
func (c *Conn) Begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy++
}

// End says that the server has answered a request: see Begin.
func (c *Conn) End() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last = time.Now(); c.busy > 0 {
		c.busy--
	}
}

// Streams says that the connection has streams, as in HTTP/2, whose protocol ends the connection by itself.
func (c *Conn) Streams() { c.streams.Store(true) }

// retire ends the connection if it is not busy and nothing was sent or received since silent. A request that arrives
// meanwhile prevents this, because the server's Read fails only after a last look has found nothing.
func (c *Conn) retire(silent time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy == 0 && !c.retiring && c.last.Before(silent) {
		c.retiring = true
		_ = c.Conn.SetReadDeadline(time.Unix(1, 0))
	}
}

// idle returns when something was last sent or received, and whether no request is being answered.
func (c *Conn) idle() (last time.Time, idle bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last, c.busy == 0
}

// Read reads from the client.
func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.retiring {
		if n == 0 {
			_ = c.Conn.SetReadDeadline(time.Now().Add(lookTime))
			n, err = c.Conn.Read(p)
		}
		if n > 0 {
			c.retiring = false
			_ = c.Conn.SetReadDeadline(c.deadline)
		}
	}
	if n > 0 {
		c.last = time.Now()
	}
	return n, err
}

// Write writes to the client.
func (c *Conn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if n > 0 {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.last = time.Now()
	}
	return n, err
}

// SetReadDeadline sets the deadline of Read, unless the connection is about to end.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.deadline = t; c.retiring {
		return nil
	}
	return c.Conn.SetReadDeadline(t)
}

// SetDeadline sets the deadlines of Read and Write.
func (c *Conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// CloseWrite ends what the client receives. The server may go on reading.
func (c *Conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// Close ends the connection.
func (c *Conn) Close() error {
	c.from.mu.Lock()
	c.from.forget(c)
	c.from.mu.Unlock()
	return c.Conn.Close()
}

// A Share bounds the units of something that the clients of a port hold. Each may hold as much as it leaves free. A single
// client has at most a half, and clients that come and go tend to equal parts. These are the dynamic thresholds of Choudhury
// and Hahne (Dynamic Queue Length Thresholds for Shared-Memory Packet Switches, 1998). It is safe for concurrent use.
type Share struct {
	most int64

	mu   sync.Mutex
	all  int64            // guarded by mu
	held map[string]int64 // guarded by mu: by client
}

// NewShare returns a Share of most units.
func NewShare(most int64) *Share { return &Share{most: most, held: make(map[string]int64)} }

// Take reports whether a client may hold n more units. If so, the client holds them until Give.
func (s *Share) Take(client string, n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[client]+n > s.most-s.all-n {
		return false
	}
	s.all += n
	s.held[client] += n
	return true
}

// Give gives back what Take took.
func (s *Share) Give(client string, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all -= n
	if s.held[client] -= n; s.held[client] == 0 {
		delete(s.held, client)
	}
}

// A Room is a number of free bytes, which Add increases. It is below zero for an instant when a request finds too few.
type Room struct{ atomic.Int64 }

// Take takes n bytes, and reports whether there were so many. The caller gives them back with Add.
func (r *Room) Take(n int64) bool {
	if r.Add(-n) >= 0 {
		return true
	}
	r.Add(n)
	return false
}

// Receive forwards the messages that a stream receives, and then the error that ended it. The stream ends with its context.
func Receive[T any](ctx context.Context, receive func() (T, error)) (messages chan T, ended chan error) {
	messages, ended = make(chan T), make(chan error, 1)
	go func() {
		for {
			m, err := receive()
			if err != nil {
				ended <- err
				return
			}
			select {
			case messages <- m:
			case <-ctx.Done():
				return
			}
		}
	}()
	return messages, ended
}
