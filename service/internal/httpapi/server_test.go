package httpapi

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"example.com/sash/service/internal/conns"
	"example.com/sash/service/internal/servertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A running server answers until stop, which returns its error.
type running struct {
	addr   string
	client *http.Client // trusts it, and speaks HTTP/1
	stop   func() error
}

func (s Server) start(t *testing.T, handler http.Handler) *running {
	t.Helper()
	listener := servertest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	ctx, end := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, listener, handler) }()
	return &running{listener.Addr().String(), http.DefaultClient, func() error { end(); return <-served }}
}

func secure(t *testing.T, handler http.Handler) *running {
	t.Helper()
	certified := httptest.NewUnstartedServer(nil)
	certified.StartTLS()
	t.Cleanup(certified.Close)
	config := &tls.Config{Certificates: certified.TLS.Certificates, NextProtos: []string{"h2", "http/1.1"}}
	s := Server{TLS: config}.start(t, handler)
	s.client = certified.Client()
	return s
}

func (s *running) dial(t testing.TB) *http2.Framer {
	t.Helper()
	conn := servertest.Must(tls.Dial("tcp", s.addr, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}))(t)
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	client := http2.NewFramer(conn, conn)
	_ = servertest.Must(io.WriteString(conn, http2.ClientPreface))(t)
	servertest.Check(t, client.WriteSettings())
	return client
}

// await reads frames until one is what the caller waits for.
func await(t testing.TB, client *http2.Framer, what string, is func(http2.Frame) bool) {
	t.Helper()
	for {
		frame, err := client.ReadFrame()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if is(frame) {
			return
		}
	}
}

// blocked is a handler that answers when finish is closed. It closes inside at its first request.
func blocked() (handler http.Handler, inside, finish chan struct{}) {
	inside, finish = make(chan struct{}), make(chan struct{})
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(inside)
		<-finish
		_, _ = io.WriteString(w, "done")
	}), inside, finish
}

// A client of HTTP/2 gets the answer to what the server has read, and learns the last such request.
func TestARequestInFlightOverHTTP2IsAnswered(t *testing.T) {
	t.Parallel()
	handler, inside, finish := blocked()
	server := secure(t, handler)
	client := server.dial(t)
	var block bytes.Buffer
	fields := hpack.NewEncoder(&block)
	for name, value := range map[string]string{":method": "GET", ":scheme": "https", ":path": "/", ":authority": "sash"} {
		_ = fields.WriteField(hpack.HeaderField{Name: name, Value: value})
	}
	head := http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true}
	servertest.Check(t, client.WriteHeaders(head))
	<-inside
	stopped := make(chan error, 1)
	go func() { stopped <- server.stop() }()
	await(t, client, "no GOAWAY", func(frame http2.Frame) bool {
		goodbye, ok := frame.(*http2.GoAwayFrame)
		if ok && goodbye.LastStreamID != 1 {
			t.Errorf("GOAWAY with the last request %d", goodbye.LastStreamID)
		}
		return ok
	})
	close(finish)
	await(t, client, "no answer", func(frame http2.Frame) bool {
		data, ok := frame.(*http2.DataFrame)
		return ok && string(data.Data()) == "done"
	})
	servertest.Check(t, <-stopped)
}

// A client that keeps its connection gets an answer to what it sends when the server stops, and learns that the
// connection ends. A client that has connected and not been accepted yet is answered too.
func TestServeAnswersOnKeptConnectionsWhenItStops(t *testing.T) {
	t.Parallel()
	listener := servertest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	queued := servertest.Must(net.Dial("tcp", listener.Addr().String()))(t)
	defer func() { _ = queued.Close() }()
	served := make(chan error, 1)
	go func() { served <- Server{}.Serve(ctx, listener, http.NotFoundHandler()) }()
	for refused := false; !refused; {
		c, err := net.DialTimeout("tcp", listener.Addr().String(), 50*time.Millisecond)
		if refused = err != nil; !refused {
			_ = c.Close()
		}
	}
	_ = servertest.Must(io.WriteString(queued, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"))(t)
	res, err := http.ReadResponse(bufio.NewReader(queued), nil)
	servertest.Check(t, err)
	_ = res.Body.Close()
	if res.StatusCode != http.StatusNotFound || !res.Close {
		t.Errorf("it answers %s, and closes the connection: %v", res.Status, res.Close)
	}
	servertest.Check(t, <-served)
}

// A connection that fails its handshake costs its client nothing.
func TestFailedHandshakesFillNoLog(t *testing.T) {
	lines := make(servertest.Lines, 1000)
	log := slog.New(slog.NewTextHandler(lines, &slog.HandlerOptions{Level: slog.LevelWarn}))
	server := Server{TLS: &tls.Config{}, Log: log}.start(t, http.NotFoundHandler())
	began := time.Now()
	for range 300 {
		conn := servertest.Must(net.Dial("tcp", server.addr))(t)
		_, _ = io.WriteString(conn, "GET / HTTP/1.0\r\n\r\n")
		_, _ = io.Copy(io.Discard, conn)
		_ = conn.Close()
	}
	if n, most := len(lines), int(time.Since(began)/time.Second)+1; n == 0 || n > most {
		t.Errorf("%d lines, want 1 to %d", n, most)
	} else if line := <-lines; !strings.Contains(line, "TLS handshake error") || !strings.Contains(line, "not_logged_before=0") {
		t.Error(line)
	}
	servertest.Check(t, server.stop())
}

// An address with many requests at once has a half of what there is room for, and others are answered.
func TestAnAddressHasAShareOfTheRequests(t *testing.T) {
	inside, finish := make(chan bool, 10), make(chan bool)
	s := Server{requests: conns.NewShare(8)}.start(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			inside <- true
			<-finish
		}
	}))
	defer func() { _ = s.stop() }()
	get := func(from, path string) (status int, retry string) {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		client := http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}}
		res, err := client.Get("http://" + s.addr + path)
		if err != nil {
			t.Error(err)
			return 0, ""
		}
		_ = res.Body.Close()
		return res.StatusCode, res.Header.Get("Retry-After")
	}
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() { get("127.0.0.1", "/slow") })
		<-inside
	}
	if status, retry := get("127.0.0.1", "/"); status != 503 || retry != "1" {
		t.Errorf("the fifth request of an address: %d, Retry-After %q", status, retry)
	}
	if status, _ := get("127.0.0.2", "/"); status != 200 {
		t.Errorf("the first request of another address: %d", status)
	}
	if status, _ := get("127.0.0.1", "/healthz"); status != 200 {
		t.Errorf("a probe from the busy address: %d", status)
	}
	close(finish)
	group.Wait()
	if status, _ := get("127.0.0.1", "/"); status != 200 {
		t.Errorf("when its requests are answered: %d", status)
	}
}
