package rls

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	quotapb "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"example.com/sash/driver"
	"example.com/sash/memstore"
	"example.com/sash/service/internal/quota"
	"example.com/sash/service/internal/servertest"
	"example.com/sash/service/internal/stats"
)

// limiting serves with bounds on calls, and streams that last.
func limiting(t *testing.T, c *calls, lasting ...Lasting) *world {
	t.Helper()
	w := &world{t: t, calls: c, lasting: lasting}
	w.serve(text, memstore.New(nil), nil)
	return w
}

func half(t *testing.T, from *stranger) (stream uint32) {
	t.Helper()
	return servertest.Must(from.Begin(pb.RateLimitService_ShouldRateLimit_FullMethodName))(t)
}

func (c *calls) number() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.partial.Len() + c.whole.Len()
}

// A call whose message never comes ends, and so does one without an end.
func TestHalfSentCallsEnd(t *testing.T) {
	c := &calls{within: 300 * time.Millisecond, most: maxCalls, half: maxHalf}
	w := limiting(t, c, pushing(nil))
	client := meet(t, w.conn.Target())
	methods := []string{
		pushMethod,
		pb.RateLimitService_ShouldRateLimit_FullMethodName,
		healthpb.Health_Check_FullMethodName,
		reflectionpb.ServerReflection_ServerReflectionInfo_FullMethodName,
		"/unknown/Method",
	}
	for i := range 900 {
		stream := servertest.Must(client.Begin(methods[i%len(methods)]))(t)
		if i%2 == 0 {
			_ = client.WriteData(stream, false, []byte{0, 0, 0, 0, 100, 1, 2, 3}) // 3 of 100 bytes
		}
	}
	servertest.Wait(t, "the calls do not begin", func() bool { return c.number() > 0 })
	servertest.Wait(t, "the half-sent calls do not end", func() bool { return client.ended.Load() == 900 })
	servertest.Wait(t, "calls that have ended count as open", func() bool { return c.number() == 0 })
	w.says("the service answers", request("ip=a"), "OK: OK 3/MINUTE 2 left 1m0s")
}

// A call that is wrong by its header is answered before its message has come. One whose compression gRPC does not have is
// invalid; an unknown caller is not, but refused.
func TestWrongHeadersAreAnsweredWithoutAMessage(t *testing.T) {
	for what, tt := range map[string]struct {
		access, header string
		invalid        float64
	}{
		"compression": {everything, "\x00\x0dgrpc-encoding\x06snappy", 50},
		"no token":    {"clients: [{name: a, tokens: [" + digest("a") + "], allow: [decide]}]", "", 0},
	} {
		c, counted := &calls{within: time.Hour, most: maxCalls, half: maxHalf}, stats.New(nil)
		w := &world{t: t, calls: c}
		w.serve(text, memstore.New(nil), &Options{Stats: counted, Access: servertest.Gate(t, tt.access)})
		client := meet(t, w.conn.Target())
		for range 50 {
			_ = servertest.Must(client.Begin(pb.RateLimitService_ShouldRateLimit_FullMethodName, []byte(tt.header)...))(t)
		}
		servertest.Wait(t, what+": the calls are not answered", func() bool { return client.ended.Load() == 50 })
		servertest.Wait(t, what+": calls that are answered count as open", func() bool { return c.number() == 0 })
		servertest.Wait(t, what+": the wrong number of invalid calls is counted", func() bool { return invalid(t, counted) == tt.invalid })
	}
}

// A client of HTTP/2 that gives no window takes no answers. The calls have ended for the service, and gRPC keeps the
// rest of their answers as long as the connection lasts.
func TestAClientThatTakesNoAnswersIsDisconnected(t *testing.T) {
	w := limiting(t, &calls{within: 300 * time.Millisecond, most: maxCalls, half: maxHalf}, pushing(nil))
	ask := func(f *stranger, calls int) {
		message := servertest.Must(proto.Marshal(request("ip=a")))(t)
		for range calls {
			stream := servertest.Must(f.Begin(pb.RateLimitService_ShouldRateLimit_FullMethodName))(t)
			_ = f.WriteData(stream, true, append([]byte{0, 0, 0, 0, byte(len(message))}, message...))
		}
	}
	taking := meet(t, w.conn.Target())
	ask(taking, 100)
	servertest.Wait(t, "answers that the client takes do not end", func() bool { return taking.ended.Load() == 100 })
	refusing := meet(t, w.conn.Target(), http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	lasting := servertest.Must(refusing.Begin(pushMethod))(t) // excuses no other
	_ = refusing.WriteData(lasting, false, make([]byte, 5))
	ask(refusing, 100)
	servertest.Wait(t, "the connection stays", refusing.gone.Load)
	if refusing.ended.Load() > 0 || taking.gone.Load() {
		t.Error("the wrong connection has ended, or answers of the right one")
	}
}

const pushMethod = "/test.Pushing/Push"

// pushing is a service whose streams send a message for each push, and read one.
func pushing(push <-chan struct{}) Lasting {
	handle := func(_ any, stream grpc.ServerStream) error {
		go func() { _ = stream.RecvMsg(&healthpb.HealthCheckRequest{}) }()
		for {
			select {
			case <-push:
				if err := stream.SendMsg(&healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVING}); err != nil {
					return err
				}
			case <-stream.Context().Done():
				return nil
			}
		}
	}
	desc := grpc.ServiceDesc{ServiceName: "test.Pushing", HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{
		{StreamName: "Push", Handler: handle, ServerStreams: true, ClientStreams: true},
	}}
	return Lasting{Method: pushMethod, Register: func(server grpc.ServiceRegistrar, _ <-chan struct{}) { server.RegisterService(&desc, nil) }}
}

// What the server sends meanwhile ends no message of the client's.
func TestHalfSentMessagesOfStreamsHaveAShare(t *testing.T) {
	push := make(chan struct{})
	w := limiting(t, &calls{within: time.Hour, most: maxCalls, half: 20_000}, pushing(push))
	f := meet(t, w.conn.Target())
	stream := servertest.Must(f.Begin(pushMethod))(t)
	send := func(data []byte) {
		_ = f.WriteData(stream, false, data)
		before := f.data.Load()
		select {
		case push <- struct{}{}:
			servertest.Wait(t, "nothing is pushed", func() bool { return f.data.Load() > before || f.gone.Load() })
		case <-time.After(time.Second): // the stream has ended
		}
	}
	for range 20 { // messages that come whole, with a text of 997 bytes
		send(append([]byte{0, 0, 0, 3, 232, 10, 229, 7}, make([]byte, 997)...))
	}
	if f.gone.Load() {
		t.Fatal("a client whose messages have come whole was disconnected")
	}
	send([]byte{0, 0, 0x40, 0, 0}) // of 4 MiB
	for i := 0; i < 20 && !f.gone.Load(); i++ {
		send(make([]byte, 1000))
	}
	servertest.Wait(t, "a client that has sent half of a long message stays", f.gone.Load)
}

// A client holds no more lasting streams than it leaves free, and gives back those that end.
func TestAClientHasAShareOfTheStreams(t *testing.T) {
	c := &calls{within: time.Hour, most: maxCalls, half: maxHalf}
	lasting := pushing(nil)
	lasting.Streams = 40
	w := limiting(t, c, lasting)
	open := func(address string, streams int, ended int64) (client *stranger) {
		client = meetFrom(t, address, w.conn.Target())
		for range streams {
			_ = servertest.Must(client.Begin(pushMethod))(t)
		}
		servertest.Wait(t, fmt.Sprintf("of %d streams %d do not end", streams, ended), func() bool { return client.ended.Load() == ended })
		return client
	}
	first := open("127.0.0.1", 30, 10)
	open("127.0.0.2", 15, 5)
	for stream := uint32(1); stream < first.next; stream += 2 {
		_ = first.WriteRSTStream(stream, http2.ErrCodeCancel)
	}
	servertest.Wait(t, "streams that have ended count", func() bool {
		share := c.lasting[pushMethod]
		free := share.Take("other", 15)
		if free {
			share.Give("other", 15)
		}
		return free
	})
	open("127.0.0.3", 16, 1)
}

// The end of a message is where its length says, however it comes. With padding it is not known.
func TestMessagesEndByTheirLength(t *testing.T) {
	wire := []byte("\x00\x00\x00\x00\x03abc\x00\x00\x00\x00\x00\x01\x00\x00\x01\x00" + strings.Repeat("x", 256) + "\x00\x00")
	for size := 1; size <= len(wire); size++ {
		m, padded := message{}, message{padded: true}
		for rest := wire; len(rest) > 0; rest = rest[min(size, len(rest)):] {
			m.add(rest[:min(size, len(rest))])
			padded.add(rest[:min(size, len(rest))])
		}
		if m.size != 2 || padded.size != int64(len(wire)) {
			t.Errorf("in pieces of %d bytes: %d bytes of the last message, want 2; with padding %d of all", size, m.size, padded.size)
		}
	}
}

func TestFramesAreReadFromAnyPieces(t *testing.T) {
	var wire bytes.Buffer
	wire.WriteString(http2.ClientPreface)
	framer := http2.NewFramer(&wire, nil)
	_ = framer.WriteSettings()
	_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: make([]byte, 300), EndHeaders: true})
	_ = framer.WriteData(1, true, []byte("abc"))
	reserved := wire.Len() + 5 // of the next frame: the bit that says nothing
	_ = framer.WriteRSTStream(3, http2.ErrCodeCancel)
	wire.Bytes()[reserved] |= 0x80
	for _, size := range []int{1, 2, 7, 9, 10, 64, wire.Len()} {
		var seen []string
		parts := make(map[http2.FrameType][]byte)
		f := frameReader{rest: len(http2.ClientPreface)}
		for rest := wire.Bytes(); len(rest) > 0; rest = rest[min(size, len(rest)):] {
			f.each(rest[:min(size, len(rest))], func(h http2.FrameHeader, part []byte) {
				if part == nil {
					seen = append(seen, fmt.Sprint(h.Type, h.Flags, h.StreamID))
				} else if h.StreamID > 0 {
					parts[h.Type] = append(parts[h.Type], part...)
				}
			})
		}
		if got := strings.Join(seen, ", "); got != "SETTINGS 0 0, HEADERS 4 1, DATA 1 1, RST_STREAM 0 3" || f.rest > 0 || len(f.head) > 0 || len(parts[http2.FrameHeaders]) != 300 || !bytes.Equal(parts[http2.FrameData], []byte("abc")) {
			t.Errorf("in pieces of %d bytes: %s, with %q", size, got, parts[http2.FrameData])
		}
	}
}

// A client that waits for its answer has sent its message, however many calls others begin meanwhile.
func TestHalfSentCallsCancelNoOther(t *testing.T) {
	c := &calls{within: time.Hour, most: 5, half: maxHalf}
	inside, finish, store := make(chan struct{}), make(chan struct{}), memstore.New(nil)
	w := &world{t: t, calls: c}
	w.serve(text, storeFunc(func(ctx context.Context, op *driver.Op) error {
		close(inside)
		select {
		case <-finish:
			return charge(ctx, store, op)
		case <-ctx.Done():
			return ctx.Err()
		}
	}), nil)
	client := meet(t, w.conn.Target())
	half(t, client) // older than the call
	servertest.Wait(t, "the call does not begin", func() bool { return c.number() == 1 })
	answered := make(chan error, 1)
	go func() {
		_, err := w.client.ShouldRateLimit(t.Context(), request("ip=a"))
		answered <- err
	}()
	<-inside
	for range 20 {
		half(t, client)
	}
	servertest.Wait(t, "half-sent calls too many are not cancelled", func() bool { return client.ended.Load() >= 16 })
	close(finish)
	servertest.Check(t, <-answered)
}

// A client that sends messages without an end, over one connection or many, holds half of what there is room for. What has come whole,
// was reset or has ended counts no longer.
func TestHalfSentMessagesHaveAShare(t *testing.T) {
	const room = 64 << 10
	w := limiting(t, &calls{within: 300 * time.Millisecond, most: maxCalls, half: room})
	part := make([]byte, 1000)
	send := func(f *stranger, parts int) (stream uint32) {
		stream = half(t, f)
		_ = f.WriteData(stream, false, []byte{0, 0, 0x40, 0, 0}) // of 4 MiB
		for range parts {
			_ = f.WriteData(stream, false, part)
		}
		return stream
	}
	for range 5 { // more than there is room for, one after the other
		f := meet(t, w.conn.Target())
		_ = f.WriteRSTStream(send(f, 10), http2.ErrCodeCancel)
		for range 10 {
			_ = f.WriteData(1001, false, part) // of no stream, which gRPC drops
		}
		send(f, 10) // ends by its time
		servertest.Wait(t, "a call without an end stays", func() bool { return f.ended.Load() == 1 })
		if f.gone.Load() {
			t.Fatal("a client with a small part of the room was disconnected")
		}
	}
	// Three connections of an address ask for more than its half, so one is closed, or two that ask at one instant. What the
	// others hold is not the room of another address, whose messages may take a while, too.
	greedy := []*stranger{meet(t, w.conn.Target()), meet(t, w.conn.Target()), meet(t, w.conn.Target())}
	for _, f := range greedy {
		send(f, 15)
	}
	gone := func() (n int) {
		for _, f := range greedy {
			if f.gone.Load() {
				n++
			}
		}
		return n
	}
	servertest.Wait(t, "all greedy clients stay", func() bool { return gone() > 0 })
	other := meetFrom(t, "127.0.0.2", w.conn.Target())
	send(other, 15)
	servertest.Wait(t, "a call of another address does not end by its time", func() bool { return other.ended.Load() == 1 })
	if other.gone.Load() || gone() == len(greedy) {
		t.Errorf("another address was disconnected: %v; %d greedy clients", other.gone.Load(), gone())
	}
}

// A message that has come whole is none without an end, however long its answer takes.
func TestWholeMessagesTakeNoShare(t *testing.T) {
	inside, finish, store := make(chan struct{}), make(chan struct{}), memstore.New(nil)
	w := &world{t: t, calls: &calls{within: time.Hour, most: maxCalls, half: 4 << 10}}
	w.serve(text, storeFunc(func(ctx context.Context, op *driver.Op) error {
		inside <- struct{}{}
		<-finish
		return charge(ctx, store, op)
	}), nil)
	client := meet(t, w.conn.Target())
	message := servertest.Must(proto.Marshal(request("ip=" + strings.Repeat("x", 1500))))(t)
	message = append([]byte{0, 0, 0, byte(len(message) >> 8), byte(len(message))}, message...)
	for range 8 {
		stream := half(t, client)
		_ = client.WriteData(stream, false, message[:1000])
		_ = client.WriteData(stream, true, message[1000:])
		select {
		case <-inside:
		case <-time.After(20 * time.Second):
			t.Fatal("a client whose messages have come whole was disconnected")
		}
	}
	close(finish)
	servertest.Wait(t, "the calls are not answered", func() bool { return client.ended.Load() == 8 })
}

// A lasting stream outlives the timeout of a call. Its messages do not add up, unlike those of an unfinished call.
func TestALastingStreamLasts(t *testing.T) {
	c := &calls{within: 100 * time.Millisecond, most: maxCalls, half: 64 << 10}
	w := &world{t: t, calls: c}
	store := memstore.New(nil)
	service := &quota.Service{Decider: servertest.Decider(t, store, text), Timeout: time.Second, Log: slog.New(slog.DiscardHandler)}
	w.lasting = []Lasting{{Method: quota.Method, Register: service.Register}}
	w.serve(text, store, nil)
	open := func() quotapb.RateLimitQuotaService_StreamRateLimitQuotasClient {
		return servertest.Must(quotapb.NewRateLimitQuotaServiceClient(w.conn).StreamRateLimitQuotas(t.Context()))(t)
	}
	report := func(stream quotapb.RateLimitQuotaService_StreamRateLimitQuotasClient, text, n string) {
		id := &quotapb.BucketId{Bucket: map[string]string{"any": text, "n": n}}
		usage := []*quotapb.RateLimitQuotaUsageReports_BucketQuotaUsage{{BucketId: id}}
		servertest.Check(t, stream.Send(&quotapb.RateLimitQuotaUsageReports{Domain: "d", BucketQuotaUsages: usage}))
		if got := servertest.Must(stream.Recv())(t).GetBucketAction()[0].GetBucketId().GetBucket()["n"]; got != n {
			t.Fatalf("bucket %s got an assignment, want %s", got, n)
		}
	}
	for range 2 * maxUntaken { // streams whose answers are between two messages
		report(open(), "idle", "0")
	}
	stream := open()
	for i := range 40 {
		report(stream, strings.Repeat("x", 3000), strconv.Itoa(i))
	}
	if n := c.number(); n != 0 {
		t.Errorf("%d calls are bounded as others", n)
	}
	servertest.Check(t, w.stop())
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("it ended with %v", err)
	}
}
