package rls

import (
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"
	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"example.com/sash/service/internal/access"
	"example.com/sash/service/internal/conns"
	"example.com/sash/service/internal/throttle"
)

// longest is the most bytes of a small request. Those of small ones are not counted.
const longest = 4 << 10

// largeMessages is how many messages of the largest size may be under way at once.
const largeMessages = 16

// errManyBytes refuses a request because of the others.
var errManyBytes = errors.New("too many bytes of large requests are under way: send this one again, or smaller ones")

// perMessage is about what protobuf needs for a message in another, beside its texts.
const perMessage = 64

// weight returns about how many bytes of memory a request has.
func weight(req *pb.RateLimitRequest) int64 {
	n := len(req.GetDomain()) + perMessage*len(req.GetDescriptors())
	for _, d := range req.GetDescriptors() {
		n += perMessage * len(d.GetEntries())
		for _, e := range d.GetEntries() {
			n += len(e.GetKey()) + len(e.GetValue())
		}
	}
	return int64(n)
}

// A codec is that of protobuf. It drops the unknown fields of a request, whose bytes weight does not count.
type codec struct{ encoding.CodecV2 }

// Unmarshal is of encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	req, ok := v.(*pb.RateLimitRequest)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buf.Free()
	return proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(buf.ReadOnlyData(), req)
}

// A weighed reader acquires the bytes that it reads beyond longest. The caller releases those that were taken.
type weighed struct {
	io.Reader
	large       *semaphore.Weighted
	read, taken int64
}

// Read is of io.Reader. Its own error is errManyBytes.
func (w *weighed) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	w.read += int64(n)
	if more := w.read - w.taken; w.read > longest && more > 0 {
		if !w.large.TryAcquire(more) {
			return 0, errManyBytes
		}
		w.taken = w.read
	}
	return n, err
}

// unread hands out connections that close when their client does not take its answers, or has sent more of messages without
// an end than its share. A client that gives HTTP/2 no window keeps the end of every answer in the server, after the call has
// ended for the service.
type unread struct {
	credentials.TransportCredentials
	within time.Duration // for an answer, from its header to its end
	half   *conns.Share  // bytes of messages without an end, by address
	log    *throttle.Log // of connections that had more
}

// ServerHandshake is of credentials.TransportCredentials.
func (u unread) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := u.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	party := access.Party(raw.RemoteAddr().String())
	a := &answers{Conn: conn, of: u, party: party, begun: make(map[uint32]time.Time), half: make(map[uint32]int64)}
	a.received.rest = len(http2.ClientPreface)
	a.look = time.AfterFunc(time.Hour, a.check)
	a.look.Stop()
	return a, info, nil
}

// answers is a connection that knows which messages and which answers have begun and have no end yet.
type answers struct {
	net.Conn
	of    unread
	party string
	look  *time.Timer // calls check while an answer has begun

	sent     frames // only Write uses it
	received frames // only Read uses it

	mu    sync.Mutex
	begun map[uint32]time.Time // guarded by mu: answers, by stream
	half  map[uint32]int64     // guarded by mu: bytes of messages, by stream that is open; gRPC drops those of others
	over  bool                 // guarded by mu: it had more than its share, or is closed
}

// Write writes frames, of which some begin and end answers.
func (a *answers) Write(p []byte) (int, error) {
	a.mu.Lock()
	none := len(a.begun) == 0
	a.sent.each(p, func(kind http2.FrameType, flags http2.Flags, stream uint32, _ int64) {
		switch {
		case kind == http2.FrameRSTStream, (kind == http2.FrameHeaders || kind == http2.FrameData) && flags.Has(http2.FlagHeadersEndStream):
			delete(a.begun, stream)
			a.whole(stream)
		case kind == http2.FrameHeaders:
			a.begun[stream] = time.Now()
		}
	})
	if none && len(a.begun) > 0 {
		a.look.Reset(a.of.within)
	}
	a.mu.Unlock()
	return a.Conn.Write(p)
}

// Read reads frames, of which some are parts of messages, and some say that the client wants no answer.
func (a *answers) Read(p []byte) (int, error) {
	n, err := a.Conn.Read(p)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.received.each(p[:n], func(kind http2.FrameType, flags http2.Flags, stream uint32, size int64) {
		switch {
		case kind == http2.FrameRSTStream:
			delete(a.begun, stream)
			a.whole(stream)
		case kind == http2.FrameData && flags.Has(http2.FlagDataEndStream):
			a.whole(stream)
		case kind == http2.FrameHeaders && !flags.Has(http2.FlagHeadersEndStream) && !a.over:
			a.half[stream] = 0
		case kind == http2.FrameData && size > 0 && !a.over:
			held, open := a.half[stream]
			switch a.over = open && !a.of.half.Take(a.party, size); {
			case a.over:
				a.of.log.Log(slog.LevelWarn, "an address has sent too much of messages without an end: its connection is closed", "address", a.party)
			case open:
				a.half[stream] = held + size
			}
		}
	})
	if a.over && err == nil {
		err = net.ErrClosed
	}
	return n, err
}

// whole gives back the bytes of a message that has come, or never will. The caller holds mu.
func (a *answers) whole(stream uint32) {
	if n := a.half[stream]; n > 0 {
		a.of.half.Give(a.party, n)
	}
	delete(a.half, stream)
}

// check closes the connection if too many answers wait for their end.
func (a *answers) check() {
	a.mu.Lock()
	defer a.mu.Unlock()
	late := 0
	for _, begun := range a.begun {
		if time.Since(begun) >= a.of.within {
			late++
		}
	}
	if late > maxUntaken {
		_ = a.Conn.Close()
	} else if len(a.begun) > 0 {
		a.look.Reset(a.of.within)
	}
}

// Close closes the connection.
func (a *answers) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.begun)
	for stream := range a.half {
		a.whole(stream)
	}
	a.over = true
	a.look.Stop()
	return a.Conn.Close()
}

// frames follows the frames of HTTP/2 in a stream of bytes, which comes in any pieces.
type frames struct {
	rest int    // bytes that the current frame still has, and at the start those before the first frame
	head []byte // of the next frame, as far as it has come
}

// each calls see for each frame whose head ends in the bytes.
func (f *frames) each(p []byte, see func(kind http2.FrameType, flags http2.Flags, stream uint32, size int64)) {
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
		see(http2.FrameType(h[3]), http2.Flags(h[4]), binary.BigEndian.Uint32(h[5:])&(1<<31-1), int64(f.rest))
	}
}
