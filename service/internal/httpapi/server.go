package httpapi

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"example.com/sash/service/internal/access"
	"example.com/sash/service/internal/conns"
	"example.com/sash/service/internal/throttle"
	"example.com/sash/service/internal/wire"
)

// The bounds of a connection. All are generous, because a decision takes milliseconds.
const (
	headerTimeout = 5 * time.Second
	readTimeout   = 10 * time.Second
	writeTimeout  = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	maxHeader     = 16 << 10
	maxStreams    = 100       // of HTTP/2
	maxUnread     = 128 << 10 // bytes of bodies that HTTP/2 holds for a connection
	maxRequests   = 16_384    // at once, from their header on
	quietTime     = 2 * time.Second
	graceTimeout  = 10 * time.Second
)

// A Server configures how a port answers HTTP. The zero value answers without TLS, and logs nothing.
type Server struct {
	TLS         *tls.Config  // nil is plain text
	Connections conns.Bounds // a nil Log is that of the server
	Log         *slog.Logger // for operators; nil is none

	requests *conns.Share // nil is the default
}

// Serve answers on a listener until the context ends. Then it accepts no new connections. A client that keeps
// its connection learns from its next answer that the connection ends. A client that sends nothing for two
// seconds is disconnected. An HTTP/2 client receives GOAWAY with the last request that is answered, and may
// send later ones elsewhere. Serve returns nil when all connections are closed, and an error if that takes more
// than ten seconds. It always closes the listener.
func (s Server) Serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	s.Log = cmp.Or(s.Log, slog.New(slog.DiscardHandler))
	s.Connections.Log = cmp.Or(s.Connections.Log, s.Log)
	known := conns.New(listener, s.Connections)
	listener = known
	if s.TLS != nil {
		listener = tls.NewListener(known, s.TLS)
	}
	requests, full := cmp.Or(s.requests, conns.NewShare(maxRequests)), throttle.Log{To: s.Log, Every: time.Minute}
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if ctx.Err() != nil { // it stops
				last(w, r)
			}
			if r.URL.Path == "/healthz" || r.URL.Path == "/healthcheck" { // a probe may come from an address with many requests
				handler.ServeHTTP(w, r)
				return
			}
			party := access.Party(r.RemoteAddr)
			if !requests.Take(party, 1) {
				full.Log(slog.LevelWarn, "an address has too many requests at once: further ones get 503", "address", party)
				w.Header().Set("Retry-After", "1")
				wire.Fail(w, http.StatusServiceUnavailable, "too many requests are under way from this address: try again in a second")
				return
			}
			defer requests.Give(party, 1)
			handler.ServeHTTP(w, r)
		}),
		ConnState: follow, MaxHeaderBytes: maxHeader,
		ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, MaxReceiveBufferPerConnection: maxUnread, MaxReceiveBufferPerStream: maxUnread,
		},
		ErrorLog: log.New(&failures{throttle.Log{To: s.Log}}, "", 0),
	}
	if err := known.Serve(ctx, func() error { return server.Serve(listener) }); err != nil {
		_ = server.Close()
		return err
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), graceTimeout)
	defer cancel()
	err := known.Finish(grace, quietTime)
	if err == nil {
		err = server.Shutdown(grace) // for HTTP/2: Shutdown would not answer what arrives over HTTP/1
	}
	if err != nil {
		_ = server.Close()
		return fmt.Errorf("stopped with requests in flight: %w", err)
	}
	return nil
}

// last makes this answer the last one on its connection. HTTP/2 connections end by GOAWAY instead.
func last(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor < 2 {
		w.Header().Set("Connection", "close")
	}
}

// failures logs errors of connections, such as failed handshakes. Any client can cause many, so it logs few of them.
type failures struct{ throttle.Log }

func (f *failures) Write(line []byte) (int, error) {
	f.Log.Log(slog.LevelWarn, strings.TrimSuffix(string(line), "\n"))
	return len(line), nil
}

func follow(conn net.Conn, state http.ConnState) {
	secure, ok := conn.(*tls.Conn)
	if ok {
		conn = secure.NetConn()
	}
	known, isKnown := conn.(*conns.Conn)
	if !isKnown {
		return
	}
	if ok && state == http.StateActive && secure.ConnectionState().NegotiatedProtocol == "h2" {
		known.Streams()
	}
	switch state {
	case http.StateActive:
		known.Begin()
	case http.StateIdle:
		known.End()
	}
}

// Recover answers 500 if a handler panics, logs the panic and calls count. By itself, net/http would close the
// connection without an answer, and nothing would count the panic.
func Recover(next http.Handler, log *slog.Logger, count func()) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			fault := recover()
			if fault == nil {
				return
			}
			if fault == http.ErrAbortHandler { //nolint:errorlint // net/http compares it so
				panic(fault)
			}
			count()
			log.Error("a request was not answered because of a fault", "path", wire.Clip(r.URL.Path), "fault", fmt.Sprint(fault), "stack", string(debug.Stack()))
			w.Header().Del("Retry-After")
			wire.Fail(w, http.StatusInternalServerError, "the request met a fault of the service: whether it was charged is not known")
		}()
		next.ServeHTTP(w, r)
	})
}
