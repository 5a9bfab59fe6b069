package conns

import (
	"encoding/binary"

	"golang.org/x/net/http2"
)

// Frames follows the frames of HTTP/2 in a stream of bytes, which comes in any pieces. The zero value is ready.
type Frames struct {
	// Rest is how many bytes the current frame still has, and at the start those before the first frame.
	Rest int

	head []byte // of the next frame, as far as it has come
}

// Next follows the bytes up to the end of a head or of a frame, and returns their number. At the end of a head ok is true.
func (f *Frames) Next(p []byte) (n int, head http2.FrameHeader, ok bool) {
	if f.Rest > 0 {
		n = min(f.Rest, len(p))
		f.Rest -= n
		return n, head, false
	}
	const size = 9
	n = min(size-len(f.head), len(p))
	f.head = append(f.head, p[:n]...)
	if len(f.head) < size {
		return n, head, false
	}
	h := f.head
	f.head, f.Rest = h[:0], int(h[0])<<16|int(h[1])<<8|int(h[2])
	return n, http2.FrameHeader{
		Length: uint32(f.Rest), Type: http2.FrameType(h[3]), Flags: http2.Flags(h[4]),
		StreamID: binary.BigEndian.Uint32(h[5:]) & (1<<31 - 1),
	}, true
}

// Between reports whether the last frame has ended and no other has begun.
func (f *Frames) Between() bool { return f.Rest == 0 && len(f.head) == 0 }
