package httpapi

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/http2"

	"example.com/sash/service/internal/conns"
)

// crossing is how long a client may go on to begin requests after it has been asked to stop: one round trip.
const crossing = time.Second

// streams serves HTTP/2, and ends its connections without losing a request. Go's server sends one GOAWAY, with the last
// request that it has seen, and drops those that are on the way to it. So it comes second: the first GOAWAY, with the
// highest number that a request can have, only asks the client to begin no more.
type streams struct {
	mu      sync.Mutex
	open    map[*framed]bool // guarded by mu
	leaving bool             // guarded by mu
	asked   time.Time        // guarded by mu: when a client was last asked to leave
}

// configure lets a server speak HTTP/2. Its options are those of the server.
func (s *streams) configure(server *http.Server) error {
	//nolint:staticcheck // that of net/http takes connections of *tls.Conn only, which nobody else can write frames to
	protocol := &http2.Server{}
	if err := http2.ConfigureServer(server, protocol); err != nil { //nolint:staticcheck // as above
		return err
	}
	server.TLSNextProto["h2"] = func(server *http.Server, conn *tls.Conn, handler http.Handler) {
		c := &framed{Conn: conn, frames: frames{to: conn}}
		s.enter(c)
		defer s.forget(c)
		if known, ok := conn.NetConn().(*conns.Conn); ok {
			known.Streams()
		}
		//nolint:staticcheck // as above
		protocol.ServeConn(c, &http2.ServeConnOpts{Handler: handler, BaseConfig: server})
	}
	return nil
}

func (s *streams) enter(c *framed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = make(map[*framed]bool)
	}
	if s.open[c] = true; s.leaving {
		s.asked = time.Now()
		c.leaving = true
	}
}

func (s *streams) forget(c *framed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, c)
}

// leave asks all clients, and those whose handshake goes on, to begin no more requests. It does not wait for those that
// take no frames.
func (s *streams) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaving, s.asked = true, time.Now()
	for c := range s.open {
		go c.leave() // it ends with the connection
	}
}

// wait returns when all clients have left, or none can begin a request because it does not know that it must not.
func (s *streams) wait(ctx context.Context) error {
	look := time.NewTicker(crossing / 50)
	defer look.Stop()
	for {
		s.mu.Lock()
		done := len(s.open) == 0 || time.Since(s.asked) >= crossing
		s.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// A framed connection is one of HTTP/2, whose frames it knows.
type framed struct {
	*tls.Conn
	frames
}

// Write writes frames to the client.
func (c *framed) Write(p []byte) (int, error) { return c.frames.Write(p) }

// frames writes frames of HTTP/2, in any pieces, and puts a GOAWAY between two of them when the connection is to end.
type frames struct {
	to io.Writer

	mu      sync.Mutex
	written conns.Frames // guarded by mu
	begun   bool         // guarded by mu: the first frame, the settings, has been written
	headers bool         // guarded by mu: only more of the same headers may follow
	leaving bool         // guarded by mu after the connection has begun
	said    bool         // guarded by mu: from then on the frames are not followed
}

// goaway is without an error, and lets all requests through.
var goaway = []byte{0, 0, 8, byte(http2.FrameGoAway), 0, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0}

// between reports whether a GOAWAY may come here.
func (f *frames) between() bool { return f.begun && f.written.Between() && !f.headers }

// leave asks the client to begin no more requests, now or after the frame that is being written.
func (f *frames) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.leaving = true; !f.said && f.between() {
		f.said = true
		_, _ = f.to.Write(goaway) // a connection that fails has no requests
	}
}

// Write writes frames.
func (f *frames) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for at := 0; at < len(p) && !f.said; {
		at += f.next(p[at:])
		if f.leaving && f.between() {
			f.said = true
			if n, err := f.to.Write(slices.Concat(p[:at], goaway, p[at:])); err != nil {
				return min(n, at), err
			}
			return len(p), nil
		}
	}
	return f.to.Write(p)
}

// next follows the bytes up to the end of a head or of a frame, and returns their number.
func (f *frames) next(p []byte) int {
	n, head, ok := f.written.Next(p)
	if ok {
		f.begun = true
		if head.Type == http2.FrameHeaders || head.Type == http2.FrameContinuation {
			f.headers = !head.Flags.Has(http2.FlagHeadersEndHeaders)
		}
	}
	return n
}
