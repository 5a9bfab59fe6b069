package rls

import (
	"bytes"
	"runtime"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"

	"example.com/sash/service/internal/servertest"
)

// Floods of frames that cost their sender little take neither memory nor goroutines without bound, and others are
// answered meanwhile.
func TestFloodsOfFrames(t *testing.T) {
	const limiter = pb.RateLimitService_ShouldRateLimit_FullMethodName
	garbage := bytes.Repeat([]byte{0x00, 0x01, 'a', 0x01, 'b'}, 2000) // of HPACK: a: b, not indexed
	for _, tt := range []struct {
		what string
		one  func(f *servertest.Frames) error
		ends bool // the server closes the connection
	}{
		{"calls that are reset at once", func(f *servertest.Frames) error {
			stream, err := f.Begin(limiter)
			if err != nil {
				return err
			}
			return f.WriteRSTStream(stream, http2.ErrCodeCancel)
		}, false},
		{"pings", func(f *servertest.Frames) error { return f.WritePing(false, [8]byte{}) }, true},
		{"settings", func(f *servertest.Frames) error {
			return f.WriteSettings(http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: 1})
		}, false},
		{"windows", func(f *servertest.Frames) error { return f.WriteWindowUpdate(0, 1) }, false},
		{"data of no stream", func(f *servertest.Frames) error { return f.WriteData(1_000_001, false, garbage) }, false},
		{"a header without an end", func(f *servertest.Frames) error {
			if f.First() {
				return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: garbage})
			}
			return f.WriteContinuation(1, false, garbage)
		}, true},
		{"large headers", func(f *servertest.Frames) error {
			_, err := f.Begin(limiter, garbage...)
			return err
		}, false},
		{"a message that is too large", func(f *servertest.Frames) error {
			if f.First() {
				if _, err := f.Begin(limiter); err != nil {
					return err
				}
				return f.WriteData(1, false, []byte{0, 0x7f, 0xff, 0xff, 0xff})
			}
			return f.WriteData(1, false, garbage)
		}, false},
	} {
		t.Run(tt.what, func(t *testing.T) {
			w := begin(t, text, nil)
			w.ask(request("ip=a"))
			before, goroutines := heap(), runtime.NumGoroutine()
			f := servertest.DialFrames(t, w.conn.Target())
			sent := 0
			for end := time.Now().Add(time.Second); time.Now().Before(end); sent++ {
				if err := tt.one(f); err != nil {
					break
				}
			}
			began := time.Now()
			w.ask(request("ip=a"))
			took, more, grown := time.Since(began), runtime.NumGoroutine()-goroutines, heap()-before
			t.Logf("%d frames; a call took %v; %d goroutines and %d KiB more", sent, took, more, grown>>10)
			if took > 5*time.Second || more > 2*maxStreams || grown > 16<<20 {
				t.Error("that is too much")
			}
			if tt.ends {
				eventually(t, "the connection stays", f.Gone)
			} else if f.Gone() {
				t.Error("the connection is closed")
			}
		})
	}
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
