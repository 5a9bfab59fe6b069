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
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"example.com/sash/service/internal/access"
	"example.com/sash/service/internal/conns"
	"example.com/sash/service/internal/throttle"
)

// longest is the most bytes of a small request. The bytes of small requests are not counted.
const longest = 4 << 10

// largeMessages is how many messages of the largest size may be in flight at once.
const largeMessages = 16

var errManyBytes = errors.New("too many bytes of large requests are under way: send this one again, or smaller ones")

// perMessage is about what protobuf needs for a nested message, beside its texts.
const perMessage = 64

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

// A codec encodes and decodes protobuf. It drops the unknown fields of a request, whose bytes weight does not count.
type codec struct{ encoding.CodecV2 }

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	req, ok := v.(*pb.RateLimitRequest)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buf.Free()
	return proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(buf.ReadOnlyData(), req)
}

// A weighed reader acquires the bytes that it reads beyond longest. The caller releases what the reader has taken.
type weighed struct {
	io.Reader
	large       *conns.Room
	read, taken int64
}

// Read implements io.Reader. Its own error is errManyBytes.
func (w *weighed) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	w.read += int64(n)
	if more := w.read - w.taken; w.read > longest && more > 0 {
		if !w.large.Take(more) {
			return 0, errManyBytes
		}
		w.taken = w.read
	}
	return n, err
}

// boundedCredentials makes connections that close if the client does not take its answers, since HTTP/2 then keeps the
// rest of them in the server. They also close if the client sends more bytes of unfinished messages than its share.
type boundedCredentials struct {
	credentials.TransportCredentials
	within     time.Duration // for an answer, from its header to its end
	unfinished *conns.Share  // bytes of unfinished messages, by address
	log        *throttle.Log // for connections that had more
}

func (b boundedCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := b.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	party := access.Party(raw.RemoteAddr().String())
	c := &boundedConn{Conn: conn, bounds: b, party: party, answers: make(map[uint32]*answer), messages: make(map[uint32]*message)}
	c.received.rest = len(http2.ClientPreface)
	c.timer = time.AfterFunc(time.Hour, c.check)
	c.timer.Stop()
	return c, info, nil
}

// A boundedConn is an HTTP/2 connection that knows its unfinished answers and messages.
type boundedConn struct {
	net.Conn
	bounds boundedCredentials
	party  string
	timer  *time.Timer // calls check while an answer has no end

	sent     frameReader // only Write uses it
	received frameReader // only Read uses it

	mu       sync.Mutex
	answers  map[uint32]*answer  // guarded by mu: the unfinished ones, by stream
	messages map[uint32]*message // guarded by mu: by open stream; gRPC drops data of others
	closed   bool                // guarded by mu: or it had more than its share
}

// An answer has messages. gRPC sends the end of the last message with the end of the answer. A lasting stream ends its messages one by one.
type answer struct {
	message
	began time.Time // when the message began, or for the first message the answer; zero between two
}

// A message is a gRPC message, which begins with its length.
type message struct {
	size   int64 // bytes that have come; zero between two
	prefix [5]byte
	held   int64 // bytes from the client's share: for this message, and for earlier ones without an answer
	padded bool  // some bytes are padding, so the end of the message is not known
}

func (m *message) add(p []byte) {
	const prefix = int64(len(m.prefix))
	for len(p) > 0 && !m.padded {
		n := prefix - m.size
		if n <= 0 {
			n += int64(binary.BigEndian.Uint32(m.prefix[1:]))
		}
		n = min(n, int64(len(p)))
		copy(m.prefix[min(m.size, prefix):], p[:n])
		m.size, p = m.size+n, p[n:]
		if m.size == prefix+int64(binary.BigEndian.Uint32(m.prefix[1:])) {
			m.size = 0
		}
	}
	m.size += int64(len(p))
}

// Write writes frames. It records the answers that they begin and end.
func (c *boundedConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	none := len(c.answers) == 0
	c.sent.each(p, func(h http2.FrameHeader, part []byte) {
		ends := (h.Type == http2.FrameHeaders || h.Type == http2.FrameData) && h.Flags.Has(http2.FlagHeadersEndStream)
		a, m := c.answers[h.StreamID], c.messages[h.StreamID]
		switch {
		case ends, h.Type == http2.FrameRSTStream:
			delete(c.answers, h.StreamID)
			c.finish(h.StreamID)
		case part != nil && h.Type == http2.FrameData && a != nil:
			if a.began.IsZero() {
				a.began = time.Now()
			}
			if a.add(part); a.size == 0 {
				a.began = time.Time{}
			}
		case part != nil:
		case h.Type == http2.FrameHeaders:
			c.answers[h.StreamID] = &answer{began: time.Now()}
		case h.Type == http2.FrameData && m != nil && m.held > m.size: // of a stream: whole messages that came before were taken
			c.bounds.unfinished.Give(c.party, m.held-m.size)
			m.held = m.size
		}
	})
	if none && len(c.answers) > 0 {
		c.timer.Reset(c.bounds.within)
	}
	c.mu.Unlock()
	return c.Conn.Write(p)
}

// Read reads frames. It records the messages that they are part of, and the streams on which the client wants no answer.
func (c *boundedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.received.each(p[:n], func(h http2.FrameHeader, part []byte) {
		m := c.messages[h.StreamID]
		switch {
		case h.Type == http2.FrameRSTStream:
			delete(c.answers, h.StreamID)
			c.finish(h.StreamID)
		case h.Type == http2.FrameData && h.Flags.Has(http2.FlagDataEndStream):
			c.finish(h.StreamID)
		case h.Type == http2.FrameHeaders && m == nil && part == nil && !h.Flags.Has(http2.FlagHeadersEndStream) && !c.closed:
			c.messages[h.StreamID] = &message{}
		case h.Type != http2.FrameData || m == nil:
		case !c.bounds.unfinished.Take(c.party, int64(len(part))):
			c.closed = true
			c.finishAll() // at once: until gRPC closes it, the other connections of the address do not pay for this one
			c.bounds.log.Log(slog.LevelWarn, "an address has sent too much of messages without an end: its connection is closed",
				"address", c.party)
		default:
			m.padded = m.padded || h.Flags.Has(http2.FlagDataPadded)
			m.held += int64(len(part))
			m.add(part)
		}
	})
	if c.closed && err == nil {
		err = net.ErrClosed
	}
	return n, err
}

// finish gives back the bytes of a message that is complete, or never will be. The caller holds mu.
func (c *boundedConn) finish(stream uint32) {
	if m := c.messages[stream]; m != nil && m.held > 0 {
		c.bounds.unfinished.Give(c.party, m.held)
	}
	delete(c.messages, stream)
}

// check closes the connection if too many answers have not ended in time.
func (c *boundedConn) check() {
	c.mu.Lock()
	defer c.mu.Unlock()
	late := 0
	for _, a := range c.answers {
		if !a.began.IsZero() && time.Since(a.began) >= c.bounds.within {
			late++
		}
	}
	if late > maxUntaken {
		_ = c.Conn.Close()
	} else if len(c.answers) > 0 {
		c.timer.Reset(c.bounds.within)
	}
}

func (c *boundedConn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.answers)
	c.finishAll()
	c.closed = true
	c.timer.Stop()
	return c.Conn.Close()
}

// finishAll gives back the bytes of all messages. The caller holds mu.
func (c *boundedConn) finishAll() {
	for stream := range c.messages {
		c.finish(stream)
	}
}

// A frameReader finds the frames in the bytes of an HTTP/2 connection, which come in any pieces.
type frameReader struct {
	frame http2.FrameHeader
	rest  int    // bytes left of the current frame; at the start, bytes before the first frame
	head  []byte // of the next frame, as much as has come
}

// each calls see without a part for each frame whose header ends in these bytes, and with the part for each part of a frame.
func (f *frameReader) each(p []byte, see func(h http2.FrameHeader, part []byte)) {
	const size = 9
	for len(p) > 0 {
		if n := min(f.rest, len(p)); n > 0 {
			see(f.frame, p[:n])
			f.rest, p = f.rest-n, p[n:]
			continue
		}
		n := min(size-len(f.head), len(p))
		if f.head, p = append(f.head, p[:n]...), p[n:]; len(f.head) < size {
			return
		}
		h := http2.FrameHeader{Type: http2.FrameType(f.head[3]), Flags: http2.Flags(f.head[4])}
		h.Length = uint32(f.head[0])<<16 | uint32(f.head[1])<<8 | uint32(f.head[2])
		h.StreamID = binary.BigEndian.Uint32(f.head[5:]) &^ (1 << 31)
		f.head, f.rest, f.frame = f.head[:0], int(h.Length), h
		see(h, nil)
	}
}
