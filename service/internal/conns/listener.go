// Package conns ends the connections of a port without losing a request, and bounds how many are open.
//
// Closing a listener resets the connections that wait in its queue, and closing an idle connection fails a request
// that a client sends at that moment. So a Listener that stops first takes what waits, and closes an idle connection only
// when nothing has arrived on it for some time. HTTP/2 ends its connections by itself.
package conns

import (
	"context"
	"errors"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"example.com/sash/service/internal/throttle"
)

// Times of a listener that stops.
const (
	stopTime  = 2 * time.Second // for all that wait
	lookEvery = 20 * time.Millisecond
)

// A Listener hands out connections of type *Conn, which it knows while they are open.
type Listener struct {
	net.Listener

	stopping atomic.Bool

	bounds Bounds
	full   throttle.Log
	freed  chan struct{} // has a value after a connection has ended
	closed chan struct{}
	once   sync.Once // closes closed

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
	return &Listener{
		Listener: listener, bounds: bounds, full: throttle.Log{To: bounds.Log, Every: time.Minute},
		freed: make(chan struct{}, 1), closed: make(chan struct{}), open: make(map[net.Addr]*Conn),
	}
}

// Accept returns the next connection. After Stop it returns those that wait, and then net.ErrClosed.
func (l *Listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if l.stopping.Load() {
		if errors.Is(err, os.ErrDeadlineExceeded) { // which may have passed before the last look at the queue
			l.within(lookTime)
			conn, err = l.Listener.Accept()
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			_ = l.Close()
			return nil, net.ErrClosed
		}
		l.within(lookTime)
	}
	if err != nil {
		return nil, err
	}
	return l.admit(conn)
}

// Stop has Accept return the connections that wait, and then close the listener, after two seconds at most. A client that
// connects at the moment of the close is disconnected. At the bound those that find no room meanwhile are closed. A Unix
// socket loses its path at once.
func (l *Listener) Stop() {
	if local, ok := l.Listener.(*net.UnixListener); ok {
		local.SetUnlinkOnClose(false) // the path may be another listener's by then
		_ = os.Remove(local.Addr().String())
	}
	l.stopping.Store(true)
	time.AfterFunc(stopTime, func() { _ = l.Close() })
	l.within(lookTime)
}

// within bounds the next Accept.
func (l *Listener) within(d time.Duration) {
	timed, ok := l.Listener.(interface{ SetDeadline(time.Time) error })
	if !ok || timed.SetDeadline(time.Now().Add(d)) != nil {
		_ = l.Close()
	}
}

// Finish returns when no connection is open, and closes those on which nothing has been sent or received for quiet,
// counted from now. It leaves those that answer a request (Begin) or have Streams. It returns the context's error if
// that ends first.
func (l *Listener) Finish(ctx context.Context, quiet time.Duration) error {
	began := time.Now()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		silent := time.Now().Add(-quiet)
		left := 0
		for _, c := range l.conns() {
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

func (l *Listener) conns() []*Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Values(l.open))
}

func (l *Listener) count(n int64) {
	if l.bounds.Open != nil {
		l.bounds.Open.Add(n)
	}
}

func (l *Listener) forget(c *Conn) {
	l.mu.Lock()
	if l.open[c.RemoteAddr()] == c { // the first Close
		delete(l.open, c.RemoteAddr())
		l.count(-1)
	}
	l.mu.Unlock()
	select {
	case l.freed <- struct{}{}:
	default:
	}
}

// Close closes the listener. Connections stay open.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}
