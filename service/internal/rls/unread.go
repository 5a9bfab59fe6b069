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
	a.sent.see = a.answer
	a.received.see = a.reset
	a.received.body = len(http2.ClientPreface)
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

// Write writes frames.
func (a *answers) Write(p []byte) (int, error) {
	a.sent.read(p)
	return a.Conn.Write(p)
}

// Read reads frames.
func (a *answers) Read(p []byte) (int, error) {
	n, err := a.Conn.Read(p)
	a.received.read(p[:n])
	return n, err
}

// answer notes the beginning or the end of an answer.
func (a *answers) answer(kind http2.FrameType, flags http2.Flags, stream uint32) {
	hasEnd := kind == http2.FrameHeaders || kind == http2.FrameData
	switch {
	case kind == http2.FrameRSTStream || hasEnd && flags.Has(http2.FlagHeadersEndStream):
		a.end(stream)
	case kind == http2.FrameHeaders:
		a.mu.Lock()
		defer a.mu.Unlock()
		if len(a.begun) == 0 {
			a.look.Reset(a.within)
		}
		a.begun[stream] = time.Now()
	}
}

// reset notes that the client wants no answer.
func (a *answers) reset(kind http2.FrameType, _ http2.Flags, stream uint32) {
	if kind == http2.FrameRSTStream {
		a.end(stream)
	}
}

func (a *answers) end(stream uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.begun, stream)
}

// check closes the connection if too many answers wait for their end. Those to watches have none.
func (a *answers) check() {
	a.mu.Lock()
	defer a.mu.Unlock()
	late := 0
	for _, begun := range a.begun {
		if time.Since(begun) >= a.within {
			late++
		}
	}
	if late > maxWatches+maxUntaken {
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

// frames reads the heads of frames in a stream of bytes.
type frames struct {
	see  func(http2.FrameType, http2.Flags, uint32)
	head []byte // of the next frame, as far as it was read
	body int    // bytes to skip first
}

func (f *frames) read(p []byte) {
	const size = 9
	for len(p) > 0 {
		n := min(f.body, len(p))
		f.body, p = f.body-n, p[n:]
		n = min(size-len(f.head), len(p))
		f.head, p = append(f.head, p[:n]...), p[n:]
		if len(f.head) == size {
			f.see(http2.FrameType(f.head[3]), http2.Flags(f.head[4]), binary.BigEndian.Uint32(f.head[5:]))
			f.body = int(f.head[0])<<16 | int(f.head[1])<<8 | int(f.head[2])
			f.head = f.head[:0]
		}
	}
}
