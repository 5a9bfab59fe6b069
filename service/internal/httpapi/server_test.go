package httpapi

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"example.com/sash/service/internal/conns"
	"example.com/sash/service/internal/servertest"
)

func TestServeLetsRequestsInFlightFinish(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	inside, finish := make(chan struct{}), make(chan struct{})
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(inside)
		<-finish
		_, _ = io.WriteString(w, "done")
	})
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- Server{}.Serve(ctx, listener, handler) }()

	answered := make(chan string, 1)
	go func() {
		res, err := http.Get("http://" + listener.Addr().String())
		if err != nil {
			answered <- err.Error()
			return
		}
		defer func() { _ = res.Body.Close() }()
		body, _ := io.ReadAll(res.Body)
		answered <- string(body)
	}()
	<-inside
	stop()
	for { // the listener closes first
		c, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			break
		}
		_ = c.Close()
	}
	select {
	case err := <-served:
		t.Fatalf("it ended before the request in flight: %v", err)
	default:
	}
	close(finish)
	if got := <-answered; got != "done" {
		t.Errorf("the request in flight got %q", got)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// A client that keeps its connection gets an answer to what it sends when the server stops, and learns that the
// connection ends. A client that has connected and not been accepted yet is answered too.
func TestServeAnswersOnKeptConnectionsWhenItStops(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	queued, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = queued.Close() }()
	served := make(chan error, 1)
	go func() { served <- Server{}.Serve(ctx, listener, http.NotFoundHandler()) }()
	for refused := false; !refused; {
		c, err := net.DialTimeout("tcp", listener.Addr().String(), 50*time.Millisecond)
		if refused = err != nil; !refused {
			_ = c.Close()
		}
	}
	if _, err := io.WriteString(queued, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(queued), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusNotFound || !res.Close {
		t.Errorf("it answers %s, and closes the connection: %v", res.Status, res.Close)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}

func TestAPortAtItsBoundEnds(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	inside, finish := make(chan struct{}), make(chan struct{})
	handler := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(inside)
		<-finish
	})
	ctx, stop := context.WithCancel(t.Context())
	full := make(servertest.Lines, 1)
	log := slog.New(slog.NewTextHandler(full, &slog.HandlerOptions{Level: slog.LevelWarn}))
	server := Server{Connections: conns.Bounds{Max: 1}, Log: log}
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, listener, handler) }()
	answered := make(chan error, 1)
	go func() {
		res, err := http.Get("http://" + listener.Addr().String())
		if err == nil {
			_ = res.Body.Close()
		}
		answered <- err
	}()
	<-inside
	end := func() error { stop(); return <-served }
	servertest.EndsAtItsBound(t, listener.Addr().String(), full, end, finish, answered)
}

// A connection that fails its handshake costs its client nothing.
func TestFailedHandshakesFillNoLog(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	lines := make(servertest.Lines, 1000)
	log := slog.New(slog.NewTextHandler(lines, &slog.HandlerOptions{Level: slog.LevelWarn}))
	served := make(chan error, 1)
	go func() { served <- Server{TLS: &tls.Config{}, Log: log}.Serve(ctx, listener, http.NotFoundHandler()) }()
	began := time.Now()
	for range 300 {
		conn, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, "GET / HTTP/1.0\r\n\r\n")
		_, _ = io.Copy(io.Discard, conn)
		_ = conn.Close()
	}
	if n, most := len(lines), int(time.Since(began)/time.Second)+1; n == 0 || n > most {
		t.Errorf("%d lines, want 1 to %d", n, most)
	} else if line := <-lines; !strings.Contains(line, "TLS handshake error") || !strings.Contains(line, "not_logged_before=0") {
		t.Error(line)
	}
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// HTTP/2 is spoken over TLS only.
func TestFloodsOfFrames(t *testing.T) {
	server := secure(t, http.NotFoundHandler())
	servertest.Floods(t, "/v1/allow", server.dial, func() {
		res, err := server.client.Get("https://" + server.addr)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
	})
	server.client.CloseIdleConnections()
	if err := server.stop(); err != nil {
		t.Error(err)
	}
}
