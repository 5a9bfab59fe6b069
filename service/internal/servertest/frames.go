package servertest

import (
	"bytes"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Frames is a client of gRPC that sends frames of HTTP/2 as it likes.
type Frames struct {
	*http2.Framer
	conn net.Conn
	next uint32

	mu    sync.Mutex
	ended map[uint32]bool // guarded by mu: streams that the server ended
	gone  bool            // guarded by mu
	heard bool            // guarded by mu: a frame has come
	last  []uint32        // guarded by mu
}

// DialFrames connects and sends settings. It answers nothing, and closes the connection with the test.
func DialFrames(t testing.TB, addr string, settings ...http2.Setting) *Frames {
	t.Helper()
	conn, err := (&net.Dialer{Timeout: 20 * time.Second}).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return NewFrames(t, conn, settings...)
}

// NewFrames is DialFrames over a connection.
func NewFrames(t testing.TB, conn net.Conn, settings ...http2.Setting) *Frames {
	t.Helper()
	t.Cleanup(func() { _ = conn.Close() })
	f := &Frames{Framer: http2.NewFramer(conn, conn), conn: conn, next: 1, ended: make(map[uint32]bool)}
	if _, err := conn.Write([]byte(http2.ClientPreface)); err != nil {
		t.Fatal(err)
	}
	if err := f.WriteSettings(settings...); err != nil {
		t.Fatal(err)
	}
	go f.read()
	return f
}

func (f *Frames) read() {
	frames := http2.NewFramer(f.conn, f.conn)
	for {
		frame, err := frames.ReadFrame()
		if err != nil {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.gone = true
			return
		}
		header := frame.Header()
		f.mu.Lock()
		if header.StreamID > 0 && (header.Type == http2.FrameRSTStream || header.Flags.Has(http2.FlagHeadersEndStream) && header.Type == http2.FrameHeaders) {
			f.ended[header.StreamID] = true
		}
		if goodbye, ok := frame.(*http2.GoAwayFrame); ok {
			f.last = append(f.last, goodbye.LastStreamID)
		}
		f.heard = true
		f.mu.Unlock()
	}
}

// Begin sends the header of a call, with more fields in HPACK, and returns its stream. Its message may follow.
func (f *Frames) Begin(method string, more ...byte) (stream uint32, err error) {
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
func (f *Frames) Ended() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.ended)
}

// Gone reports whether the server has closed the connection.
func (f *Frames) Gone() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.gone
}

// Last returns the last streams that the server answers, by each GOAWAY that it has sent.
func (f *Frames) Last() []uint32 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.last)
}

// Greeted reports whether the server has sent a frame.
func (f *Frames) Greeted() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.heard
}
