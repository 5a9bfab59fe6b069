package redisstore

import (
	"bytes"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Silent names the servers that have owed this process the answer to a script for at least d, on a connection that [Dial]
// made or is making, as in "127.0.0.1:6379 has not answered for 50ms". It is empty if there is none. Other commands do not
// count, since Redis may answer them late, as it does BLPOP. See also [Refused].
func Silent(d time.Duration) string {
	longest := owing.servers(clock(), d)
	const most = 3
	names := slices.Sorted(maps.Keys(longest))
	said := make([]string, 0, most+1)
	for i, addr := range names {
		if i == most {
			said = append(said, fmt.Sprintf("%d more servers", len(names)-most))
			break
		}
		said = append(said, fmt.Sprintf("%s has not answered for %v", addr, longest[addr].Round(time.Millisecond)))
	}
	return strings.Join(said, ", ")
}

// Refused returns the error with which [Dial] failed to connect to the server at addr, if it did so in the last second
// and has not connected to it since. Otherwise it is nil.
func Refused(addr string) error {
	owing.mu.Lock()
	defer owing.mu.Unlock()
	owing.forget(clock())
	return owing.refused[addr].err
}

// A Connector is a [Scripter] that knows whether its client is connected at all.
type Connector interface {
	// Unconnected says that the client has no connection, to what, and perhaps why. Otherwise it is empty. It must not
	// block.
	Unconnected() string
}

// Silent implements [driver.Witness]: what a [Connector] says, and then that of the package.
func (s *Store) Silent(d time.Duration) string {
	said := Silent(d)
	if connector, ok := s.scripts.(Connector); ok {
		if unconnected := connector.Unconnected(); unconnected != "" {
			said = strings.TrimSuffix(unconnected+"; "+said, "; ")
		}
	}
	return said
}

// owing holds the connections of this process. There is one, because clients copy their options, and so nothing else
// leads from a store to the connections of its client.
var owing = watches{open: make(map[*watched]struct{}), ended: make(map[string]ending), refused: make(map[string]unreached)}

// clock returns the time since the process began: never 0, and not that of a clock that can be set.
func clock() time.Duration { return time.Since(began) + 1 }

var began = time.Now()

// remembered is for how long Silent names a server whose connection ended without an answer, or was not made: clients
// close such a connection at the deadline of the call that learns from Silent, and try to connect again.
const remembered = time.Second

// watches are the connections of a process, as many as it has open.
type watches struct {
	mu    sync.Mutex
	open  map[*watched]struct{} // guarded by mu
	ended map[string]ending     // guarded by mu; by address, those that ended without an answer

	refused map[string]unreached // guarded by mu; by address, the last attempt to connect, if it failed
}

// An unreached is when an attempt to connect failed, and why.
type unreached struct {
	at  time.Duration
	err error
}

// An ending is when a connection ended without an answer, and for how long it had waited.
type ending struct{ at, waited time.Duration }

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

// end forgets a connection. It remembers the server if that still owed an answer.
func (w *watched) end(owed bool) {
	now := clock()
	owing.mu.Lock()
	defer owing.mu.Unlock()
	if _, open := owing.open[w]; !open {
		return
	}
	delete(owing.open, w)
	owing.forget(now)
	if since := w.since.Load(); owed && since != 0 {
		owing.ended[w.addr] = ending{now, now - time.Duration(since)}
	}
}

// fail forgets an attempt to connect that failed, and remembers why.
func (w *watched) fail(err error) {
	w.end(false)
	now := clock()
	owing.mu.Lock()
	defer owing.mu.Unlock()
	owing.forget(now)
	owing.refused[w.addr] = unreached{now, err}
}

// forget drops what is no longer remembered. The caller holds mu.
func (o *watches) forget(now time.Duration) {
	maps.DeleteFunc(o.ended, func(_ string, e ending) bool { return now-e.at > remembered })
	maps.DeleteFunc(o.refused, func(_ string, r unreached) bool { return now-r.at > remembered })
}

// servers returns the servers that have owed an answer for at least d, and for how long.
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
		add(addr, e.waited)
	}
	return longest
}

// over returns the connection that was made. It offers system calls if conn does, which go-redis uses to test it.
func (w *watched) over(conn net.Conn) net.Conn {
	w.since.Store(0)
	owing.mu.Lock()
	delete(owing.refused, w.addr)
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

// A connection notes what the server owes: an answer from the first script after the last read on. Redis answers other
// commands when it likes, such as BLPOP, WAIT and SUBSCRIBE of a client that is not for decisions alone.
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
	c.watched.end(true)
	return c.Conn.Close()
}
