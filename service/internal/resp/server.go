// Package resp answers RESP, the protocol of Redis, to Redis clients in any language: CL.THROTTLE as in the module
// redis-cell, the commands of SASH, and the commands with which clients connect. docs/resp.md describes them.
package resp

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"example.com/sash/service/internal/access"
	"example.com/sash/service/internal/conns"
	"example.com/sash/service/internal/throttle"
)

// Times of a connection. A decision takes milliseconds, so all are generous; pools keep idle connections.
const (
	handshakeTime = 5 * time.Second
	commandTime   = 10 * time.Second // from the first byte of a command to its last
	writeTime     = 10 * time.Second // for a client to take its replies
	idleTime      = time.Hour
	quietTime     = 2 * time.Second
	graceTime     = 10 * time.Second
	leaveTime     = 8 * time.Second // the part of graceTime after which a connection ends, behind the replies to what has come
	acceptPause   = 50 * time.Millisecond
)

// A Server configures how a port answers RESP. The zero value answers without TLS, and logs nothing.
type Server struct {
	TLS         *tls.Config  // nil is plain text
	Connections conns.Bounds // a nil Log means the server's
	Log         *slog.Logger // for operators; nil is none

	writeTimeout time.Duration // for a client to take its replies; zero is writeTime
	held         *conns.Share  // bytes of commands and replies, by address; nil is mostHeld
}

type serving struct {
	Server
	handler *Handler
	known   *conns.Listener
	failed  throttle.Log
	leaving atomic.Bool // connections end behind the replies to what has come
	ids     atomic.Int64
	open    sync.WaitGroup
}

// Serve answers on a listener until the context ends. Then it takes no new connections. It closes connections on which
// nothing is sent for two seconds, and after eight seconds closes each one behind the replies to what has come. Serve
// returns nil when all are closed, and an error if that takes more than ten seconds. It closes the listener in any case.
func (s Server) Serve(ctx context.Context, listener net.Listener, handler *Handler) error {
	s.Log = cmp.Or(s.Log, slog.New(slog.DiscardHandler))
	s.Connections.Log = cmp.Or(s.Connections.Log, s.Log)
	s.held = cmp.Or(s.held, conns.NewShare(mostHeld))
	on := &serving{Server: s, handler: handler, known: conns.New(listener, s.Connections), failed: throttle.Log{To: s.Log}}
	work, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer on.open.Wait()
	defer cut()
	if err := on.known.Serve(ctx, func() error { return on.accept(work) }); err != nil {
		return err
	}
	leave := time.AfterFunc(leaveTime, func() { on.leaving.Store(true) })
	defer leave.Stop()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), graceTime)
	defer cancel()
	if err := on.known.Finish(grace, quietTime); err != nil {
		return fmt.Errorf("stopped with commands in flight: %w", err)
	}
	return nil
}

// accept serves connections until the listener is closed, and returns its error. The connections end with ctx.
func (s *serving) accept(ctx context.Context) error {
	defer func() { _ = s.known.Close() }()
	for {
		raw, err := s.known.Accept()
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		if err != nil { // such as too many descriptors of the process
			s.failed.Log(slog.LevelWarn, "a connection could not be accepted", "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(acceptPause):
			}
			continue
		}
		s.open.Go(func() { s.serve(ctx, raw.(*conns.Conn)) })
	}
}

// serve answers one connection until it ends. The context cuts it off.
func (s *serving) serve(ctx context.Context, known *conns.Conn) {
	c := &conn{serving: s, known: known, net: known, session: session{id: s.ids.Add(1), from: known.RemoteAddr()}}
	c.party = access.Party(c.session.from.String())
	defer func() { _ = c.net.Close() }()
	defer context.AfterFunc(ctx, func() { _ = known.Close() })()
	if s.TLS != nil {
		secured := tls.Server(known, s.TLS)
		c.net = secured
		limited, cancel := context.WithTimeout(ctx, handshakeTime)
		err := secured.HandshakeContext(limited)
		cancel()
		if err != nil {
			s.failed.Log(slog.LevelWarn, "the TLS handshake failed", "from", known.RemoteAddr().String(), "error", err)
			return
		}
		state := secured.ConnectionState()
		c.session.cert = access.Certificate(&state)
	}
	c.run(ctx)
}
