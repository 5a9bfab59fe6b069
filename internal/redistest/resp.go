package redistest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"example.com/sash/redisstore"
)

// replyTimeout bounds one command, so that a test ends if its server hangs.
const replyTimeout = 30 * time.Second

// A conn is a connection that speaks RESP2, one command at a time. The zero value is not connected.
type conn struct {
	mu sync.Mutex
	nc net.Conn // guarded by mu; nil when not connected
	r  *bufio.Reader
}

func (c *conn) do(dial func() (net.Conn, error), args []string) (any, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.nc == nil {
		nc, err := dial()
		if err != nil {
			return nil, err
		}
		c.nc, c.r = nc, bufio.NewReader(nc)
	}
	reply, err := c.exchange(args)
	if err != nil {
		c.nc.Close()
		c.nc = nil
		return nil, err
	}
	if failed, ok := reply.(error); ok {
		return nil, failed
	}
	return reply, nil
}

func (c *conn) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.nc != nil {
		c.nc.Close()
		c.nc = nil
	}
}

func (c *conn) exchange(args []string) (any, error) {
	if err := c.nc.SetDeadline(time.Now().Add(replyTimeout)); err != nil {
		return nil, err
	}
	b := fmt.Appendf(nil, "*%d\r\n", len(args))
	for _, arg := range args {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	if _, err := c.nc.Write(b); err != nil {
		return nil, err
	}
	return readReply(c.r)
}

// readReply reads one RESP2 reply. It returns an error reply as a value; its error is that of the connection.
func readReply(r *bufio.Reader) (any, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	if len(line) < 3 || line[len(line)-2] != '\r' {
		return nil, fmt.Errorf("internal/redistest: the line %q is not a RESP reply", line)
	}
	kind, line := line[0], line[1:len(line)-2]
	switch kind {
	case '+':
		return line, nil
	case '-':
		return errors.New(line), nil
	}
	n, err := strconv.ParseInt(line, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("internal/redistest: the line %q is not a RESP reply: %w", line, err)
	}
	switch {
	case kind == ':':
		return n, nil
	case n < 0:
		return nil, nil
	case kind == '$':
		b := make([]byte, n+2)
		if _, err := io.ReadFull(r, b); err != nil {
			return nil, err
		}
		return string(b[:n]), nil
	case kind == '*':
		all := make([]any, n)
		for i := range all {
			if all[i], err = readReply(r); err != nil {
				return nil, err
			}
		}
		return all, nil
	}
	return nil, fmt.Errorf("internal/redistest: unknown kind of reply %q", kind)
}

// Scripter returns a store's client over the plain connection of a server, for tests that use no client library.
func Scripter(server *Server) redisstore.Scripter { return scripter{server} }

type scripter struct{ server *Server }

// Cluster implements [redisstore.Scripter].
func (s scripter) Cluster() bool { return false }

// Run implements [redisstore.Scripter].
func (s scripter) Run(_ context.Context, script *redisstore.Script, keys []string, arg string) (string, error) {
	tail := append(append([]string{strconv.Itoa(len(keys))}, keys...), arg)
	reply, err := s.server.Do(append([]string{"EVALSHA", script.SHA1}, tail...)...)
	if err != nil && strings.Contains(err.Error(), "NOSCRIPT") {
		reply, err = s.server.Do(append([]string{"EVAL", script.Text}, tail...)...)
	}
	text, _ := reply.(string)
	return text, err
}

// Dial returns a server that another process started, for tests with several processes. It takes commands on one
// connection, which the first command opens and which lives as long as this process, and nothing else.
func Dial(addr string) *Server {
	return &Server{dial: func() (net.Conn, error) { return net.DialTimeout("tcp", addr, replyTimeout) }}
}
