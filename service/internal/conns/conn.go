package conns

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

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

// Begin says that the server has begun to answer a request, and End that it has answered one. In between the connection
// is not closed for the service to end or for another to take its place.
func (c *Conn) Begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy++
}

// End is described at Begin.
func (c *Conn) End() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last = time.Now(); c.busy > 0 {
		c.busy--
	}
}

// Streams says that the connection has streams, as in HTTP/2. Their protocol ends it by itself.
func (c *Conn) Streams() { c.streams.Store(true) }

// retire ends the connection if it is not busy and nothing was sent or received since silent. A request that arrives
// meanwhile prevents it: the server's Read fails only after a last look has found nothing.
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

// cut closes a connection that is retiring and whose server does not read.
func (c *Conn) cut() {
	c.mu.Lock()
	retiring := c.retiring
	c.mu.Unlock()
	if retiring {
		_ = c.Close()
	}
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
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
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
	c.from.forget(c)
	return c.Conn.Close()
}

// A Share bounds what the clients of a port hold together of something. Each may hold as much as it leaves free: one alone has at
// most a half, a second one half of the rest at least, and those that come and go tend to equal parts. These are the dynamic
// thresholds of Choudhury and Hahne (Dynamic Queue Length Thresholds for Shared-Memory Packet Switches, 1998). It is safe
// for concurrent use.
type Share struct {
	most int64

	mu   sync.Mutex
	all  int64            // guarded by mu
	held map[string]int64 // guarded by mu: by client
}

// NewShare returns a Share of most units.
func NewShare(most int64) *Share { return &Share{most: most, held: make(map[string]int64)} }

// Take reports whether a client may hold n more, which are then its own until Give.
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
