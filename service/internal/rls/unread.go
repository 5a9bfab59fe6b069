package rls

import (
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/credentials"

	"example.com/sash/service/internal/conns"
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
	a.received.Rest = len(http2.ClientPreface)
	a.look = time.AfterFunc(time.Hour, a.check)
	a.look.Stop()
	return a, info, nil
}

// answers is a connection that knows which answers have begun and have no end yet.
type answers struct {
	net.Conn
	within time.Duration
	look   *time.Timer // calls check while an answer has begun

	sent     conns.Frames // only Write uses it
	fresh    []uint32     // only Write uses it: streams whose answers have begun in what it writes, without an end
	received conns.Frames // only Read uses it

	mu    sync.Mutex
	begun map[uint32]time.Time // guarded by mu: by stream, but for those in fresh
}

// Write writes frames. Most answers begin and end in one piece, and are not noted.
func (a *answers) Write(p []byte) (int, error) {
	a.fresh = a.fresh[:0]
	each(&a.sent, p, a.answer)
	if len(a.fresh) > 0 {
		a.begin()
	}
	return a.Conn.Write(p)
}

// Read reads frames.
func (a *answers) Read(p []byte) (int, error) {
	n, err := a.Conn.Read(p)
	each(&a.received, p[:n], a.reset)
	return n, err
}

// each calls see with the heads of the frames that begin in the bytes.
func each(f *conns.Frames, p []byte, see func(http2.FrameHeader)) {
	for len(p) > 0 {
		n, head, ok := f.Next(p)
		if p = p[n:]; ok {
			see(head)
		}
	}
}

// answer notes the beginning or the end of an answer.
func (a *answers) answer(f http2.FrameHeader) {
	hasEnd := f.Type == http2.FrameHeaders || f.Type == http2.FrameData
	switch {
	case f.Type == http2.FrameRSTStream || hasEnd && f.Flags.Has(http2.FlagHeadersEndStream):
		if i := slices.Index(a.fresh, f.StreamID); i >= 0 {
			a.fresh = slices.Delete(a.fresh, i, i+1)
		} else {
			a.end(f.StreamID)
		}
	case f.Type == http2.FrameHeaders:
		a.fresh = append(a.fresh, f.StreamID)
	}
}

// begin notes the answers that have begun and not ended.
func (a *answers) begin() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.begun) == 0 {
		a.look.Reset(a.within)
	}
	now := time.Now()
	for _, stream := range a.fresh {
		a.begun[stream] = now
	}
}

// reset notes that the client wants no answer.
func (a *answers) reset(f http2.FrameHeader) {
	if f.Type == http2.FrameRSTStream {
		a.end(f.StreamID)
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
