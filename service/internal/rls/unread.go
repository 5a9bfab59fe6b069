package rls

import (
	"encoding/binary"
	"net"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/credentials"
)

// unread hands out connections that close when their client does not take its answers. A client that gives HTTP/2 no
// window keeps the end of every answer in the server, after the call has ended for the service.
type unread struct {
	credentials.TransportCredentials
	within time.Duration // for an answer, from its header to its end
}

// ServerHandshake is of credentials.TransportCredentials.
func (u unread) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := u.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	a := &answers{Conn: conn, within: u.within, begun: make(map[uint32]time.Time)}
	a.received.rest = len(http2.ClientPreface)
	a.look = time.AfterFunc(time.Hour, a.check)
	a.look.Stop()
	return a, info, nil
}

// answers is a connection that knows which answers have begun and have no end yet.
type answers struct {
	net.Conn
	within time.Duration
	look   *time.Timer // calls check while an answer has begun

	sent     frames // only Write uses it
	received frames // only Read uses it

	mu    sync.Mutex
	begun map[uint32]time.Time // guarded by mu: by stream
}

// Write writes frames, of which some begin and end answers.
func (a *answers) Write(p []byte) (int, error) {
	a.mu.Lock()
	none := len(a.begun) == 0
	a.sent.each(p, func(kind http2.FrameType, flags http2.Flags, stream uint32) {
		switch {
		case kind == http2.FrameRSTStream, (kind == http2.FrameHeaders || kind == http2.FrameData) && flags.Has(http2.FlagHeadersEndStream):
			delete(a.begun, stream)
		case kind == http2.FrameHeaders:
			a.begun[stream] = time.Now()
		}
	})
	if none && len(a.begun) > 0 {
		a.look.Reset(a.within)
	}
	a.mu.Unlock()
	return a.Conn.Write(p)
}

// Read reads frames, of which some say that the client wants no answer.
func (a *answers) Read(p []byte) (int, error) {
	n, err := a.Conn.Read(p)
	a.received.each(p[:n], func(kind http2.FrameType, _ http2.Flags, stream uint32) {
		if kind == http2.FrameRSTStream {
			a.mu.Lock()
			defer a.mu.Unlock()
			delete(a.begun, stream)
		}
	})
	return n, err
}

// check closes the connection if too many answers wait for their end.
func (a *answers) check() {
	a.mu.Lock()
	defer a.mu.Unlock()
	late := 0
	for _, begun := range a.begun {
		if time.Since(begun) >= a.within {
			late++
		}
	}
	if late > maxUntaken {
		_ = a.Conn.Close()
	} else if len(a.begun) > 0 {
		a.look.Reset(a.within)
	}
}

// Close closes the connection.
func (a *answers) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.begun)
	a.look.Stop()
	return a.Conn.Close()
}

// frames follows the frames of HTTP/2 in a stream of bytes, which comes in any pieces.
type frames struct {
	rest int    // bytes that the current frame still has, and at the start those before the first frame
	head []byte // of the next frame, as far as it has come
}

// each calls see for each frame whose head ends in the bytes.
func (f *frames) each(p []byte, see func(kind http2.FrameType, flags http2.Flags, stream uint32)) {
	const size = 9
	for len(p) > 0 {
		n := min(f.rest, len(p))
		if f.rest, p = f.rest-n, p[n:]; f.rest > 0 {
			return
		}
		n = min(size-len(f.head), len(p))
		if f.head, p = append(f.head, p[:n]...), p[n:]; len(f.head) < size {
			return
		}
		h := f.head
		f.head, f.rest = h[:0], int(h[0])<<16|int(h[1])<<8|int(h[2])
		see(http2.FrameType(h[3]), http2.Flags(h[4]), binary.BigEndian.Uint32(h[5:])&(1<<31-1))
	}
}
