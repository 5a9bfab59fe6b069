package redisstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"
)

// Greet sends PING on a new connection and returns an error unless a Redis answers. A server of another kind can crash
// a client that takes its bytes for replies. Redis also answers a client that has not authenticated, so no permission
// is needed. The error is a [*ForeignError] for a server that is not a Redis, the server's words if it turns this client
// away, and otherwise that of the connection. The caller closes the connection after an error. ctx bounds the wait.
func Greet(ctx context.Context, conn net.Conn) error {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) }) // in the past: reading ends
	said, err := exchange(conn)
	if !stop() {
		if errors.Is(ctx.Err(), context.Canceled) {
			return ctx.Err()
		}
		return fmt.Errorf("no answer to PING: %w", os.ErrDeadlineExceeded) // no error of a context: nobody gave up
	}
	switch {
	case len(said) == 0 && err != nil:
		if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
			return fmt.Errorf("the server ended the connection without an answer (does this port use TLS?): %w", err)
		}
		return fmt.Errorf("no answer to PING: %w", err)
	case said == "+PONG\r\n":
		return nil
	case strings.HasPrefix(said, "-DENIED"), strings.HasPrefix(said, "-ERR max number of clients"):
		return errors.New(strings.TrimPrefix(strings.TrimSpace(said[1:]), "ERR ")) // it closes the connection
	case strings.HasPrefix(said, "-") && strings.Index(said, "\n") == len(said)-1:
		return nil // such as NOAUTH: the client gets it too, for a command of its own
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
		if end := n > 0 && buffer[0] != '+' && buffer[0] != '-'; end || err != nil || n == len(buffer) || bytes.IndexByte(buffer[:n], '\n') >= 0 {
			return string(buffer[:n]), err
		}
	}
}

// A ForeignError means that a server is not a Redis.
type ForeignError struct {
	Said string // what the server sent instead of a reply; may be its beginning
}

// Error quotes what the server sent, and says what kind of server that is and what to do.
func (e *ForeignError) Error() string {
	const longest = 60
	said := strings.TrimSpace(e.Said[:min(len(e.Said), longest)])
	if line, _, ok := strings.Cut(said, "\r\n"); ok {
		said = line
	}
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
