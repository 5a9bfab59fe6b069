package rls

import (
	"bytes"
	"runtime"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// floods sends frames that cost their sender little, in tests of t, one kind over each connection that dial returns. It
// expects that they take neither memory nor goroutines without bound, and that others are answered meanwhile: ask
// requests something. Calls of the floods have this path.
func floods(t *testing.T, path string, dial func(testing.TB) *stranger, ask func()) {
	garbage := bytes.Repeat([]byte{0x00, 0x01, 'a', 0x01, 'b'}, 2000) // of HPACK: a: b, not indexed
	for what, one := range map[string]func(f *stranger, first bool) error{
		"calls that are reset at once": func(f *stranger, _ bool) error {
			stream, err := f.Begin(path)
			if err != nil {
				return err
			}
			return f.WriteRSTStream(stream, http2.ErrCodeCancel)
		},
		"pings": func(f *stranger, _ bool) error { return f.WritePing(false, [8]byte{}) },
		"settings": func(f *stranger, _ bool) error {
			return f.WriteSettings(http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: 1})
		},
		"windows":           func(f *stranger, _ bool) error { return f.WriteWindowUpdate(0, 1) },
		"data of no stream": func(f *stranger, _ bool) error { return f.WriteData(1_000_001, false, garbage) },
		"a header without an end": func(f *stranger, first bool) error {
			if first {
				return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: garbage})
			}
			return f.WriteContinuation(1, false, garbage)
		},
		"large headers": func(f *stranger, _ bool) error {
			_, err := f.Begin(path, garbage...)
			return err
		},
		"a message that is too large": func(f *stranger, first bool) error {
			if !first {
				return f.WriteData(1, false, garbage)
			}
			if _, err := f.Begin(path); err != nil {
				return err
			}
			return f.WriteData(1, false, []byte{0, 0x7f, 0xff, 0xff, 0xff})
		},
	} {
		t.Run(what, func(t *testing.T) {
			ask()
			before, goroutines := heap(), runtime.NumGoroutine()
			f, sent := dial(t), 0
			for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end) && one(f, sent == 0) == nil; {
				sent++
			}
			began := time.Now()
			ask()
			took, more, grown := time.Since(began), runtime.NumGoroutine()-goroutines, heap()-before
			t.Logf("%d frames; an answer took %v; %d goroutines and %d KiB more", sent, took, more, grown>>10)
			if took > 5*time.Second || more > 500 || grown > 16<<20 {
				t.Error("that is too much")
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
