package redisstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Dial connects to the server at addr with connect, and returns the connection if a Redis answers a PING on it. A server of another kind
// can crash a client that reads its bytes as replies. PING needs no permission. [Silent] knows the connection until it is closed.
//
// The error is a [*net.OpError] of dialing: no request of a caller was sent. It wraps a [*ForeignError] for a server that is not
// a Redis. ctx bounds the wait.
func Dial(ctx context.Context, addr string, connect func(context.Context) (net.Conn, error)) (net.Conn, error) {
	w := watch(addr)
	conn, err := connect(ctx)
	if err != nil {
		return nil, w.unmade(ctx, err)
	}
	if err := greet(ctx, conn); err != nil {
		_ = conn.Close()
		return nil, w.unmade(ctx, &net.OpError{Op: "dial", Net: conn.RemoteAddr().Network(), Addr: conn.RemoteAddr(), Err: err})
	}
	return w.over(conn), nil
}

func (w *watched) unmade(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		w.end(nil) // the server did not answer
	} else {
		w.end(err)
	}
	return err
}

// greet sends PING on a new connection and returns an error unless a Redis answers.
func greet(ctx context.Context, conn net.Conn) error {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) }) // in the past: reading ends
	said, err := exchange(conn)
	switch {
	case !stop() && errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err()
	case ctx.Err() != nil:
		return fmt.Errorf("no answer to PING: %w", os.ErrDeadlineExceeded) // not a context's error: the caller has not given up
	case len(said) == 0 && (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)):
		return fmt.Errorf("the server ended the connection without an answer (does this port use TLS?): %w", err)
	case len(said) == 0:
		return fmt.Errorf("no answer to PING: %w", err)
	case said == "+PONG\r\n":
		return nil
	case strings.HasPrefix(said, "-DENIED"), strings.HasPrefix(said, "-ERR max number of clients"):
		return errors.New(strings.TrimPrefix(strings.TrimSpace(said[1:]), "ERR ")) // it closes the connection
	case strings.HasPrefix(said, "-") && strings.Index(said, "\n") == len(said)-1:
		return nil // such as NOAUTH: the client gets the same error for a command of its own
	}
	return &ForeignError{Said: said}
}

// exchange sends PING and returns the answer, up to the end of its first line.
func exchange(conn net.Conn) (string, error) {
	if _, err := conn.Write([]byte("*1\r\n$4\r\nPING\r\n")); err != nil {
		return "", err
	}
	buffer, n := make([]byte, 512), 0
	for {
		more, err := conn.Read(buffer[n:])
		n += more
		foreign := n > 0 && buffer[0] != '+' && buffer[0] != '-'
		if foreign || err != nil || n == len(buffer) || bytes.IndexByte(buffer[:n], '\n') >= 0 {
			return string(buffer[:n]), err
		}
	}
}

// A ForeignError means that a server is not a Redis.
type ForeignError struct {
	Said string // the beginning of what the server sent
}

// Error quotes what the server sent, and says what kind of server that is and what to do.
func (e *ForeignError) Error() string {
	const longest = 60
	said, _, _ := strings.Cut(strings.TrimSpace(e.Said[:min(len(e.Said), longest)]), "\r\n")
	return fmt.Sprintf("the server is not a Redis: it sent %q; %s", said, e.kind())
}

func (e *ForeignError) kind() string {
	for _, k := range [...]struct{ begins, kind string }{
		{"HTTP/", "that is a web server: check the address"},
		{"\x15\x03", "that is a port with TLS: connect with TLS"},
		{"ERROR", "that is memcached: check the address"},
		{"SSH-", "that is an SSH server: check the address"},
	} {
		if strings.HasPrefix(e.Said, k.begins) {
			return k.kind
		}
	}
	return "check the address and the port"
}

// Silent names the servers that have owed this process the answer to a script for at least d, on a connection that [Dial] made or is
// making, as in "127.0.0.1:6379 has not answered for 50ms". It returns "" if there are none. See also [Refused].
func Silent(d time.Duration) string {
	longest := owing.servers(clock(), d)
	const most = 3
	var said []string
	for _, addr := range slices.Sorted(maps.Keys(longest)) {
		said = append(said, fmt.Sprintf("%s has not answered for %v", addr, longest[addr].Round(time.Millisecond)))
	}
	if len(said) > most {
		said = append(said[:most], fmt.Sprintf("%d more servers", len(said)-most))
	}
	return strings.Join(said, ", ")
}

// Refused returns the error with which [Dial] failed to connect to the server at addr in the last second. It returns nil
// if there was none, or if Dial has connected since.
func Refused(addr string) error {
	owing.mu.Lock()
	defer owing.mu.Unlock()
	owing.forget(clock())
	return owing.ended[addr].err
}

// A Connector is a [Scripter] that knows whether its client has a connection for a call.
type Connector interface {
	// Unconnected returns "" unless the client has no connection. Then it says to which server, and perhaps why. It must not block.
	Unconnected() string
}

// Silent implements [driver.Witness]. It returns what a [Connector] says, and then what the package's Silent says.
func (s *Store) Silent(d time.Duration) string {
	said := Silent(d)
	if connector, ok := s.scripts.(Connector); ok {
		if unconnected := connector.Unconnected(); unconnected != "" {
			said = strings.TrimSuffix(unconnected+"; "+said, "; ")
		}
	}
	return said
}

// owing holds the connections of this process. It is global because clients copy their options, so that nothing else leads
// from a store to the connections of its client.
var owing = watches{open: make(map[*watched]struct{}), ended: make(map[string]ending)}

// clock returns the time since the process began. It is never 0, and setting the wall clock does not change it.
func clock() time.Duration { return time.Since(began) + 1 }

var began = time.Now()

// remembered is how long Silent names a server whose connection ended without an answer or was not made. A client closes such a
// connection before the failed call asks Silent.
const remembered = time.Second

// watches are the connections of a process, as many as it has open.
type watches struct {
	mu    sync.Mutex
	open  map[*watched]struct{} // guarded by mu
	ended map[string]ending     // guarded by mu; by address, the last connection that ended without an answer or was not made
}

// An ending says when a connection ended without an answer and for how long it had waited, or why it was not made.
type ending struct {
	at, waited time.Duration
	err        error
}

// A watched is a connection, or an attempt to make one.
type watched struct {
	addr  string
	since atomic.Int64 // by clock, when the server began to owe an answer; 0 if it owes none
}

func watch(addr string) *watched {
	w := &watched{addr: addr}
	w.since.Store(int64(clock()))
	owing.mu.Lock()
	defer owing.mu.Unlock()
	owing.open[w] = struct{}{}
	return w
}

// end forgets a connection. It remembers a server that still owed an answer, or the error if the connection was not made.
func (w *watched) end(err error) {
	now := clock()
	owing.mu.Lock()
	defer owing.mu.Unlock()
	if _, open := owing.open[w]; !open {
		return
	}
	delete(owing.open, w)
	owing.forget(now)
	switch since := w.since.Load(); {
	case err != nil:
		owing.ended[w.addr] = ending{at: now, err: err}
	case since != 0:
		owing.ended[w.addr] = ending{at: now, waited: now - time.Duration(since)}
	}
}

// forget drops what is no longer remembered. The caller holds mu.
func (o *watches) forget(now time.Duration) {
	maps.DeleteFunc(o.ended, func(_ string, e ending) bool { return now-e.at > remembered })
}

// servers returns the servers that have owed an answer for at least d, with the time that each has owed it.
func (o *watches) servers(now, d time.Duration) map[string]time.Duration {
	longest := make(map[string]time.Duration)
	add := func(addr string, waited time.Duration) {
		if waited >= d {
			longest[addr] = max(longest[addr], waited)
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.forget(now)
	for w := range o.open {
		if since := w.since.Load(); since != 0 {
			add(w.addr, now-time.Duration(since))
		}
	}
	for addr, e := range o.ended {
		if e.err == nil {
			add(addr, e.waited)
		}
	}
	return longest
}

// over returns the watched connection over conn. It offers system calls if conn does, because go-redis tests a connection with them.
func (w *watched) over(conn net.Conn) net.Conn {
	w.since.Store(0)
	owing.mu.Lock()
	if owing.ended[w.addr].err != nil {
		delete(owing.ended, w.addr)
	}
	owing.mu.Unlock()
	c := &connection{conn, w}
	if raw, ok := conn.(syscall.Conn); ok {
		return struct {
			*connection
			syscall.Conn
		}{c, raw}
	}
	return c
}

// A connection records since when the server owes an answer: since the first script after the last read. Other commands do
// not count, because Redis may answer them late, such as BLPOP, WAIT and SUBSCRIBE of a client that does not only decide.
type connection struct {
	net.Conn
	watched *watched
}

// Write implements net.Conn.
func (c *connection) Write(b []byte) (int, error) {
	if c.watched.since.Load() == 0 && (bytes.Contains(b, []byte("EVAL")) || bytes.Contains(b, []byte("eval"))) {
		c.watched.since.Store(int64(clock()))
	}
	return c.Conn.Write(b)
}

// Read implements net.Conn.
func (c *connection) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.watched.since.Store(0)
	}
	return n, err
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.watched.end(nil)
	return c.Conn.Close()
}

// trips are the scripts that are on their way to a server or back. The zero trips are none.
type trips struct {
	mu    sync.Mutex
	last  uint64
	began map[uint64]time.Duration // guarded by mu: by clock
}

func (t *trips) begin() (trip uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.began == nil {
		t.began = make(map[uint64]time.Duration)
	}
	t.last++
	t.began[t.last] = clock()
	return t.last
}

func (t *trips) end(trip uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.began, trip)
}

// Waits implements [driver.Witness]. It returns for how long the oldest script has been with the client.
func (s *Store) Waits() time.Duration {
	s.trips.mu.Lock()
	defer s.trips.mu.Unlock()
	now := clock()
	oldest := now
	for _, began := range s.trips.began {
		oldest = min(oldest, began)
	}
	return now - oldest
}
