package rls

import (
	"errors"
	"io"
	"sync/atomic"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// longest is the most bytes of a small request. Those of small ones are not counted.
const longest = 4 << 10

// largeMessages is how many messages of the largest size may be under way at once.
const largeMessages = 16

// errManyBytes refuses a request because of the others.
var errManyBytes = errors.New("too many bytes of large requests are under way: send this one again, or smaller ones")

// under is the bytes of large requests that are being read at /json or decided, at most so many. It is safe for concurrent
// use.
type under struct {
	most int64
	way  atomic.Int64
}

// take counts bytes that the caller gives back, or reports that there is no room.
func (u *under) take(bytes int64) bool {
	if u.way.Add(bytes) > u.most {
		u.give(bytes)
		return false
	}
	return true
}

func (u *under) give(bytes int64) { u.way.Add(-bytes) }

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

// A weighed reader counts what it reads beyond longest. The caller gives taken back.
type weighed struct {
	io.Reader
	under       *under
	read, taken int64
}

// Read is of io.Reader. Its own error is errManyBytes.
func (w *weighed) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	w.read += int64(n)
	if more := w.read - w.taken; w.read > longest && more > 0 {
		if !w.under.take(more) {
			return 0, errManyBytes
		}
		w.taken = w.read
	}
	return n, err
}
