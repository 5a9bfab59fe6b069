package httpapi

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"example.com/sash/service/internal/servertest"
)

// A secured server answers over TLS until stop.
type secured struct {
	addr   string
	client *http.Client // of HTTP/1
	stop   func() error
}

func secure(t *testing.T, handler http.Handler) *secured {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	certified := httptest.NewUnstartedServer(nil)
	certified.StartTLS()
	t.Cleanup(certified.Close)
	config := &tls.Config{Certificates: certified.TLS.Certificates, NextProtos: []string{"h2", "http/1.1"}}
	ctx, end := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- Server{TLS: config}.Serve(ctx, listener, handler) }()
	return &secured{listener.Addr().String(), certified.Client(), func() error { end(); return <-served }}
}

// dial connects with HTTP/2.
func (s *secured) dial(t testing.TB) *servertest.Frames {
	conn, err := tls.Dial("tcp", s.addr, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	return servertest.NewFrames(t, conn)
}

// A client of HTTP/2 begins a request before it knows that the server ends.
func TestARequestThatCrossesTheEndIsAnswered(t *testing.T) {
	server := secure(t, http.NotFoundHandler())
	client := server.dial(t)
	begin := func() {
		if _, err := client.Begin("/v1/allow"); err != nil {
			t.Fatal(err)
		}
	}
	begin()
	servertest.Wait(t, "no answer", func() bool { return client.Ended() == 1 })
	stopped := make(chan error, 1)
	go func() { stopped <- server.stop() }()
	servertest.Wait(t, "the client is not asked to leave", func() bool { return len(client.Last()) == 1 })
	begin()
	begin()
	servertest.Wait(t, "no answer to what has crossed the end", func() bool { return client.Ended() == 3 })
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if got, want := client.Last(), []uint32{1<<31 - 1, 5}; !slices.Equal(got, want) {
		t.Errorf("the server says goodbye with the last requests %d, want %d", got, want)
	}
}

// A client that waits for nothing does not keep the server for longer than the client needs to receive GOAWAY.
func TestAClientWithoutRequestsIsDisconnected(t *testing.T) {
	server := secure(t, http.NotFoundHandler())
	client := server.dial(t)
	servertest.Wait(t, "no settings", client.Greeted)
	began := time.Now()
	if err := server.stop(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > graceTimeout/2 {
		t.Errorf("it took %v", took)
	}
}

// In whatever pieces the frames are written, and whenever the end comes, one GOAWAY comes between two of them: after the
// settings, and not within headers.
func TestGoodbyeComesBetweenFrames(t *testing.T) {
	var plain bytes.Buffer
	f := http2.NewFramer(&plain, nil)
	_ = f.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1 << 15})
	_ = f.WriteSettingsAck()
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte("abc")})
	_ = f.WriteContinuation(1, false, []byte("de"))
	_ = f.WriteContinuation(1, true, nil)
	_ = f.WriteData(1, true, make([]byte, 300))
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: []byte("abc"), EndHeaders: true})
	want := kinds(t, plain.Bytes())
	for size := 1; size <= plain.Len(); size++ {
		for end := 0; end <= plain.Len(); end += size {
			var got bytes.Buffer
			w := frames{to: &got}
			for at, rest := 0, plain.Bytes(); len(rest) > 0; at += size {
				if at == end {
					w.leave()
				}
				n, err := w.Write(rest[:min(size, len(rest))])
				if err != nil {
					t.Fatal(err)
				}
				rest = rest[n:]
			}
			w.leave()
			w.leave()
			all := kinds(t, got.Bytes())
			at := slices.Index(all, http2.FrameGoAway)
			if at < 1 || at == 3 || at == 4 {
				t.Fatalf("pieces of %d bytes, leaving after %d: %v", size, end, all)
			}
			if !slices.Equal(slices.Delete(slices.Clone(all), at, at+1), want) {
				t.Fatalf("pieces of %d bytes, leaving after %d: %v, want %v and one GOAWAY", size, end, all, want)
			}
		}
	}
}

// kinds returns the kinds of frames.
func kinds(t *testing.T, written []byte) (all []http2.FrameType) {
	t.Helper()
	f := http2.NewFramer(nil, bytes.NewReader(written))
	for range bytes.Count(written, nil) {
		frame, err := f.ReadFrame()
		if err != nil {
			break
		}
		all = append(all, frame.Header().Type)
		written = written[frame.Header().Length+9:]
	}
	if len(written) > 0 {
		t.Fatalf("%d bytes after %v are no frame", len(written), all)
	}
	return all
}
