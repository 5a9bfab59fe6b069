package rls

import (
	"slices"
	"unicode/utf8"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	protobuf "google.golang.org/protobuf/proto"
)

// A codec reads requests and writes responses itself if they have only the fields that most have, and leaves the others
// to protobuf, which allocates each message and string by itself.
type codec struct{ encoding.CodecV2 }

// longest is the most bytes of a request that the codec reads itself: each text that outlives it keeps all of them.
const longest = 4 << 10

func newCodec() codec { return codec{encoding.GetCodecV2(proto.Name)} }

// Unmarshal is of encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	req, ok := v.(*pb.RateLimitRequest)
	if ok && data.Len() <= longest {
		buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
		read := readRequest(string(buf.ReadOnlyData()), req)
		buf.Free()
		if read {
			return nil
		}
	}
	if ok {
		buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
		defer buf.Free()
		// It resets the request. Unknown fields would be bytes that weight does not count.
		return protobuf.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(buf.ReadOnlyData(), req)
	}
	return c.CodecV2.Unmarshal(data, v)
}

// Marshal is of encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if res, ok := v.(*pb.RateLimitResponse); ok && plain(res) {
		var usual [128]byte
		return mem.BufferSlice{mem.SliceBuffer(slices.Clone(appendResponse(usual[:0], res)))}, nil
	}
	return c.CodecV2.Marshal(v)
}

// A room is for the messages of most requests.
type room struct {
	descriptors [2]common.RateLimitDescriptor
	entries     [4]common.RateLimitDescriptor_Entry
	ofRequest   [2]*common.RateLimitDescriptor
	ofAll       [4]*common.RateLimitDescriptor_Entry
}

// place returns the place of message i, or a new one if there is no room for it.
func place[M any](room []M, i int) *M {
	if i < len(room) {
		return &room[i]
	}
	return new(M)
}

// readRequest reads a request without limits, hits and refunds of descriptors. It reports whether that is all there is;
// if not, the request is incomplete.
func readRequest(wire string, req *pb.RateLimitRequest) bool {
	in := &room{}
	req.Descriptors = in.ofRequest[:0]
	entries := in.ofAll[:0]
	for wire != "" {
		var tag int
		var text string
		var n uint64
		var ok bool
		if tag, text, n, wire, ok = field(wire); !ok {
			return false
		}
		switch tag {
		case 1<<3 | wireBytes:
			req.Domain = text
			ok = utf8.ValidString(text)
		case 2<<3 | wireBytes:
			d, before := place(in.descriptors[:], len(req.Descriptors)), len(entries)
			if entries, ok = readDescriptor(text, entries, in); len(entries) > before {
				d.Entries = entries[before:len(entries):len(entries)]
			}
			req.Descriptors = append(req.Descriptors, d)
		case 3<<3 | wireVarint:
			req.HitsAddend = uint32(n)
		default:
			ok = false
		}
		if !ok {
			return false
		}
	}
	if len(req.Descriptors) == 0 {
		req.Descriptors = nil
	}
	return true
}

// readDescriptor reads the entries of a descriptor behind those of others.
func readDescriptor(wire string, entries []*common.RateLimitDescriptor_Entry, in *room) ([]*common.RateLimitDescriptor_Entry, bool) {
	for wire != "" {
		var tag int
		var text string
		var ok bool
		if tag, text, _, wire, ok = field(wire); !ok || tag != 1<<3|wireBytes {
			return entries, false
		}
		e := place(in.entries[:], len(entries))
		if !readEntry(text, e) {
			return entries, false
		}
		entries = append(entries, e)
	}
	return entries, true
}

func readEntry(wire string, e *common.RateLimitDescriptor_Entry) bool {
	for wire != "" {
		var tag int
		var text string
		var ok bool
		if tag, text, _, wire, ok = field(wire); !ok || !utf8.ValidString(text) {
			return false
		}
		switch tag {
		case 1<<3 | wireBytes:
			e.Key = text
		case 2<<3 | wireBytes:
			e.Value = text
		default:
			return false
		}
	}
	return true
}

// Wire types.
const (
	wireVarint = int(protowire.VarintType)
	wireBytes  = int(protowire.BytesType)
)

// field reads a field whose tag has one byte, and returns the tag, its bytes or number, and what follows.
func field(wire string) (tag int, text string, n uint64, rest string, ok bool) {
	tag, wire = int(wire[0]), wire[1:]
	if n, wire, ok = uvarint(wire); !ok {
		return 0, "", 0, "", false
	}
	switch tag & 7 {
	case wireVarint:
		return tag, "", n, wire, tag < 128
	case wireBytes:
		if n <= uint64(len(wire)) {
			return tag, wire[:n], 0, wire[n:], tag < 128
		}
	}
	return 0, "", 0, "", false
}

// uvarint reads a varint of up to nine bytes; none of a request is longer.
func uvarint(wire string) (n uint64, rest string, ok bool) {
	for i := 0; i < len(wire) && i < 9; i++ {
		n |= uint64(wire[i]&127) << (7 * i)
		if wire[i] < 128 {
			return n, wire[i+1:], true
		}
	}
	return 0, "", false
}

// plain reports whether appendResponse writes all of a response.
func plain(res *pb.RateLimitResponse) bool {
	for _, st := range res.Statuses {
		if st.Quota != nil || !utf8.ValidString(st.CurrentLimit.GetName()) {
			return false
		}
	}
	return res.ResponseHeadersToAdd == nil && res.RequestHeadersToAdd == nil && res.RawBody == nil && res.DynamicMetadata == nil && res.Quota == nil
}

func appendResponse(b []byte, res *pb.RateLimitResponse) []byte {
	b = appendNumber(b, 1, uint64(res.OverallCode))
	for _, st := range res.Statuses {
		var at, within int
		b, at = open(b, 2)
		b = appendNumber(b, 1, uint64(st.Code))
		if l := st.CurrentLimit; l != nil {
			b, within = open(b, 2)
			b = appendNumber(b, 1, uint64(l.RequestsPerUnit))
			b = appendNumber(b, 2, uint64(l.Unit))
			if l.Name != "" {
				b = protowire.AppendString(protowire.AppendTag(b, 3, protowire.BytesType), l.Name)
			}
			if m := l.UnitMultiplier; m != nil {
				var inner int
				b, inner = open(b, 4)
				b = end(appendNumber(b, 1, uint64(m.Value)), inner)
			}
			b = end(b, within)
		}
		b = appendNumber(b, 3, uint64(st.LimitRemaining))
		if d := st.DurationUntilReset; d != nil {
			b, within = open(b, 4)
			b = appendNumber(b, 1, uint64(d.Seconds))
			b = end(appendNumber(b, 2, uint64(d.Nanos)), within)
		}
		b = end(b, at)
	}
	return b
}

// appendNumber appends a field that is not zero.
func appendNumber(b []byte, number protowire.Number, n uint64) []byte {
	if n == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, number, protowire.VarintType), n)
}

// open begins a message, and returns where: end takes it.
func open(b []byte, number protowire.Number) (begun []byte, at int) {
	b = append(protowire.AppendTag(b, number, protowire.BytesType), 0)
	return b, len(b)
}

// end writes the length of a message before it.
func end(b []byte, at int) []byte {
	var size [10]byte
	n := protowire.AppendVarint(size[:0], uint64(len(b)-at))
	b[at-1] = n[0]
	return slices.Insert(b, at, n[1:]...)
}
