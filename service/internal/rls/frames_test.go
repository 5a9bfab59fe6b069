package rls

import (
	"bytes"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// A stranger is a client of gRPC that sends frames of HTTP/2 as it likes.
type stranger struct {
	*http2.Framer
	conn net.Conn
	next uint32

	mu    sync.Mutex
	ended map[uint32]bool // guarded by mu: streams that the server ended
	gone  bool            // guarded by mu
}

// meet connects and sends settings. It answers nothing, and closes the connection with the test.
func meet(t testing.TB, addr string, settings ...http2.Setting) *stranger {
	t.Helper()
	conn, err := (&net.Dialer{Timeout: 20 * time.Second}).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	f := &stranger{Framer: http2.NewFramer(conn, conn), conn: conn, next: 1, ended: make(map[uint32]bool)}
	if _, err := conn.Write([]byte(http2.ClientPreface)); err != nil {
		t.Fatal(err)
	}
	if err := f.WriteSettings(settings...); err != nil {
		t.Fatal(err)
	}
	go f.read()
	return f
}

func (f *stranger) read() {
	frames := http2.NewFramer(f.conn, f.conn)
	for {
		frame, err := frames.ReadFrame()
		f.mu.Lock()
		if err != nil {
			f.gone = true
			f.mu.Unlock()
			return
		}
		header := frame.Header()
		ends := header.Type == http2.FrameHeaders && header.Flags.Has(http2.FlagHeadersEndStream)
		if header.StreamID > 0 && (ends || header.Type == http2.FrameRSTStream) {
			f.ended[header.StreamID] = true
		}
		f.mu.Unlock()
	}
}

// Begin sends the header of a call, with more fields in HPACK, and returns its stream. Its message may follow.
func (f *stranger) Begin(method string, more ...byte) (stream uint32, err error) {
	var block bytes.Buffer
	fields := hpack.NewEncoder(&block)
	for _, field := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", method}, {":authority", "sash"},
		{"content-type", "application/grpc"}, {"te", "trailers"},
	} {
		_ = fields.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
	}
	stream = f.next
	f.next += 2
	return stream, f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: append(block.Bytes(), more...), EndHeaders: true})
}

// Ended returns how many streams the server has ended.
func (f *stranger) Ended() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.ended)
}

// Gone reports whether the server has closed the connection.
func (f *stranger) Gone() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.gone
}
