package rls

import (
	"runtime"
	"strings"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// requests are some whose fields the codec reads itself, and some that it leaves to protobuf.
func requests() (own, others []*pb.RateLimitRequest) {
	many := request()
	for i := range 5 {
		many.Descriptors = append(many.Descriptors, descriptor("a=b c=d "+strings.Repeat("e=f ", i)))
	}
	hits := request("ip=a")
	hits.HitsAddend = 1<<32 - 1
	own = []*pb.RateLimitRequest{
		{}, {Domain: "d"}, request("ip=192.0.2.7"), request("a=b c=d", "e=f"), many, hits,
		request("k=" + strings.Repeat("long", 100)), {Descriptors: []*common.RateLimitDescriptor{{}, {Entries: []*common.RateLimitDescriptor_Entry{{}}}}},
	}
	limited, refund, cost := request("a=b"), request("a=b"), request("a=b")
	limited.Descriptors[0].Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 3, Unit: typev3.RateLimitUnit_DAY}
	refund.Descriptors[0].IsNegativeHits = true
	cost.Descriptors[0].HitsAddend = wrapperspb.UInt64(1 << 63)
	return own, []*pb.RateLimitRequest{limited, refund, cost}
}

func TestTheCodecReadsMostRequestsItself(t *testing.T) {
	own, others := requests()
	for _, req := range own {
		var got pb.RateLimitRequest
		if wire := wireOf(t, req); !readRequest(string(wire), &got) || !proto.Equal(&got, req) {
			t.Errorf("%v is read as %v", req, &got)
		}
	}
	for _, req := range others {
		var got pb.RateLimitRequest
		if wire := wireOf(t, req); readRequest(string(wire), &got) {
			t.Errorf("%v is read as %v", req, &got)
		} else if err := newCodec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(wire)}, &got); err != nil || !proto.Equal(&got, req) {
			t.Errorf("%v is read as %v, %v", req, &got, err)
		}
	}
	wire := string(wireOf(t, request("a=b c=d")))
	if n := testing.AllocsPerRun(100, func() { readRequest(wire, &pb.RateLimitRequest{}) }); n > 2 {
		t.Errorf("a request takes %v allocations", n)
	}
}

// A text that outlives its request must not keep a long message.
func TestATextOfALongMessageIsKeptAlone(t *testing.T) {
	req := request("k=" + strings.Repeat("x", 1<<20))
	data := mem.BufferSlice{mem.SliceBuffer(wireOf(t, req))}
	heap := func() uint64 {
		runtime.GC()
		var now runtime.MemStats
		runtime.ReadMemStats(&now)
		return now.HeapAlloc
	}
	before, kept := heap(), make([]string, 50)
	for i := range kept {
		var got pb.RateLimitRequest
		if err := newCodec().Unmarshal(data, &got); err != nil || !proto.Equal(&got, req) {
			t.Fatal(err)
		}
		kept[i] = got.Domain
	}
	if after := heap(); after > before+20<<20 {
		t.Errorf("%d domains keep %d MiB", len(kept), (after-before)>>20)
	}
	runtime.KeepAlive(kept)
}

// Whatever the codec reads itself protobuf reads likewise, which is the definition.
func FuzzRequestsAreReadAsByProtobuf(f *testing.F) {
	own, others := requests()
	for _, req := range append(own, others...) {
		wire := wireOf(f, req)
		f.Add(wire)
		f.Add(append(wire, wire...)) // the last one counts
		f.Add(wire[:max(0, len(wire)-1)])
		f.Add(append([]byte("\x0a\x02\xff\xfe"), wire...)) // not UTF-8
		f.Add(append([]byte("\x78\x01"), wire...))         // an unknown field
		f.Add(append([]byte("\x8a\x00\x01d"), wire...))    // a long tag
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		var got, want pb.RateLimitRequest
		if !readRequest(string(wire), &got) {
			return
		}
		if err := proto.Unmarshal(wire, &want); err != nil || !proto.Equal(&got, &want) {
			t.Errorf("%q is read as %v; protobuf reads %v, %v", wire, &got, &want, err)
		}
	})
}

func TestTheCodecWritesResponses(t *testing.T) {
	limit := func(name string, times *wrapperspb.UInt32Value) *pb.RateLimitResponse_RateLimit {
		return &pb.RateLimitResponse_RateLimit{RequestsPerUnit: 1 << 31, Unit: pb.RateLimitResponse_RateLimit_YEAR, Name: name, UnitMultiplier: times}
	}
	full := &pb.RateLimitResponse{OverallCode: pb.RateLimitResponse_OVER_LIMIT, Statuses: []*pb.RateLimitResponse_DescriptorStatus{
		{}, {Code: pb.RateLimitResponse_OK, LimitRemaining: 1<<32 - 1},
		{CurrentLimit: &pb.RateLimitResponse_RateLimit{}, DurationUntilReset: &durationpb.Duration{}},
		{CurrentLimit: limit("login", wrapperspb.UInt32(300)), DurationUntilReset: &durationpb.Duration{Seconds: 86400, Nanos: 5}},
		{CurrentLimit: limit(strings.Repeat("long", 100), &wrapperspb.UInt32Value{}), DurationUntilReset: &durationpb.Duration{Seconds: -1, Nanos: -1}},
	}}
	notUTF8 := proto.CloneOf(full)
	notUTF8.Statuses[3].CurrentLimit.Name = "\xff"
	for _, c := range []struct {
		res *pb.RateLimitResponse
		own bool
	}{
		{&pb.RateLimitResponse{}, true}, {full, true}, {notUTF8, false},
		{&pb.RateLimitResponse{RawBody: []byte("x")}, false},
		{&pb.RateLimitResponse{DynamicMetadata: &structpb.Struct{}}, false},
		{&pb.RateLimitResponse{Quota: &pb.RateLimitResponse_Quota{}}, false},
		{&pb.RateLimitResponse{Statuses: []*pb.RateLimitResponse_DescriptorStatus{{Quota: &pb.RateLimitResponse_Quota{}}}}, false},
	} {
		if plain(c.res) != c.own {
			t.Errorf("plain(%v) is %v", c.res, !c.own)
		}
		wire, err := newCodec().Marshal(c.res)
		if c.res == notUTF8 {
			if err == nil {
				t.Error("a name that is not UTF-8 is written")
			}
			continue
		}
		var got pb.RateLimitResponse
		if err == nil {
			err = proto.Unmarshal(wire.Materialize(), &got)
		}
		if err != nil || !proto.Equal(&got, c.res) {
			t.Errorf("%v is written as %v, %v", c.res, &got, err)
		}
	}
	// Every field that the protocol may have later must be known here.
	if n := full.ProtoReflect().Descriptor().Fields().Len() + full.Statuses[0].ProtoReflect().Descriptor().Fields().Len() +
		limit("", nil).ProtoReflect().Descriptor().Fields().Len(); n != 7+5+4 {
		t.Errorf("the messages of a response have %d fields: does plain know all of them?", n)
	}
}

func wireOf(t testing.TB, req *pb.RateLimitRequest) []byte {
	t.Helper()
	wire, err := proto.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	return wire
}
