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

// Dial connects to the server at addr with connect, and returns the connection if a Redis answers a PING on it. A server
// of another kind can crash a client that takes its bytes for replies. A Redis also answers a client that has not
// authenticated, so no permission is needed. [Silent] knows the connection until it is closed.
//
// The error is a [*net.OpError] of dialing, so nothing was sent that a caller asked for. It wraps a [*ForeignError] for
// a server that is not a Redis. ctx bounds the wait.
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

// unmade ends an attempt to connect, and returns its error.
func (w *watched) unmade(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		w.end(true) // the server did not answer
	} else {
		w.fail(err)
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
		return fmt.Errorf("no answer to PING: %w", os.ErrDeadlineExceeded) // no error of a context: nobody gave up
	case len(said) == 0 && (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)):
		return fmt.Errorf("the server ended the connection without an answer (does this port use TLS?): %w", err)
	case len(said) == 0:
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
