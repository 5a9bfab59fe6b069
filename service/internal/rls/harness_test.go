package rls

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"example.com/sash/driver"
	"example.com/sash/memstore"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/servertest"
)

// A world is a service on a loopback port, with a client and a clock that the test moves.
type world struct {
	calls   *calls // bounds; nil is the default
	lasting []Lasting

	defaults config.Defaults
	t        *testing.T
	client   pb.RateLimitServiceClient
	conn     *grpc.ClientConn
	stop     func() error

	mu  sync.Mutex
	now time.Time // guarded by mu
}

func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *world) move(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

const everything = "anonymous: {allow: [decide, refund, override, long_windows]}"

func begin(t *testing.T, text string, opts *Options) *world {
	t.Helper()
	w := &world{t: t, now: time.Unix(1_800_000_000, 0)}
	w.serve(text, memstore.New(&memstore.Options{Now: w.clock}), opts)
	return w
}

func (w *world) serve(text string, store driver.Store, opts *Options) {
	t := w.t
	t.Helper()
	cfg := servertest.Must(config.Parse(w.defaults, false, config.File{Name: "x.yaml", Text: []byte(text)}))(t)
	decider := servertest.Must(decide.New(cfg, func(config.Place) (driver.Store, error) { return store, nil }))(t)
	opts = cmp.Or(opts, &Options{})
	opts.Access, opts.Log = cmp.Or(opts.Access, servertest.Gate(t, everything)), cmp.Or(opts.Log, slog.New(slog.DiscardHandler))
	if opts.Stats != nil {
		decider.Observe(opts.Stats.Observe)
	}
	listener := servertest.Must(new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- Server{Log: opts.Log, Lasting: w.lasting, calls: w.calls}.Serve(ctx, listener, New(decider, opts))
	}()
	w.stop = sync.OnceValue(func() error { cancel(); return <-ended })
	w.conn = servertest.Must(grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials())))(t)
	w.client = pb.NewRateLimitServiceClient(w.conn)
	t.Cleanup(func() {
		_ = w.conn.Close()
		if err := w.stop(); err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
}

// descriptor reads "key=value key=value".
func descriptor(text string) *common.RateLimitDescriptor {
	d := &common.RateLimitDescriptor{}
	for field := range strings.FieldsSeq(text) {
		key, value, _ := strings.Cut(field, "=")
		d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: key, Value: value})
	}
	return d
}

func request(descriptors ...string) *pb.RateLimitRequest {
	req := &pb.RateLimitRequest{Domain: "d"}
	for _, text := range descriptors {
		req.Descriptors = append(req.Descriptors, descriptor(text))
	}
	return req
}

func (w *world) ask(req *pb.RateLimitRequest) *pb.RateLimitResponse {
	w.t.Helper()
	return servertest.Must(w.client.ShouldRateLimit(w.t.Context(), req))(w.t)
}

// says checks an answer, written as "OVER_LIMIT: OK 5/SECOND 4 left 1s | OVER_LIMIT …".
func (w *world) says(what string, req *pb.RateLimitRequest, want string) *pb.RateLimitResponse {
	w.t.Helper()
	res := w.ask(req)
	if got := spell(res); got != want {
		w.t.Errorf("%s:\n\t     %s\n\twant %s", what, got, want)
	}
	return res
}

func spell(res *pb.RateLimitResponse) string {
	var statuses []string
	for _, st := range res.Statuses {
		text := st.Code.String()
		if l := st.CurrentLimit; l != nil {
			text += fmt.Sprintf(" %d/%v", l.RequestsPerUnit, l.Unit)
			if m := l.UnitMultiplier; m != nil {
				text += fmt.Sprintf("*%d", m.Value)
			}
			text += fmt.Sprintf(" %d left %v", st.LimitRemaining, st.DurationUntilReset.AsDuration())
		}
		statuses = append(statuses, text)
	}
	return res.OverallCode.String() + ": " + strings.Join(statuses, " | ")
}

// A stranger is a client of gRPC that sends frames of HTTP/2 as it likes.
type stranger struct {
	*http2.Framer
	conn  net.Conn
	next  uint32
	ended atomic.Int64 // streams that the server has ended
	data  atomic.Int64 // frames of it that the server has sent
	gone  atomic.Bool  // the server has closed the connection
}

// meet connects and sends settings. It answers nothing, and closes the connection with the test.
func meet(t testing.TB, addr string, settings ...http2.Setting) *stranger {
	t.Helper()
	return meetFrom(t, "127.0.0.1", addr, settings...)
}

func meetFrom(t testing.TB, from, addr string, settings ...http2.Setting) *stranger {
	t.Helper()
	dialer := net.Dialer{Timeout: 20 * time.Second, LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn := servertest.Must(dialer.DialContext(t.Context(), "tcp", addr))(t)
	t.Cleanup(func() { _ = conn.Close() })
	f := &stranger{Framer: http2.NewFramer(conn, conn), conn: conn, next: 1}
	_ = servertest.Must(conn.Write([]byte(http2.ClientPreface)))(t)
	servertest.Check(t, f.WriteSettings(settings...))
	go f.read()
	return f
}

func (f *stranger) read() {
	defer f.gone.Store(true)
	ended, frames := make(map[uint32]bool), http2.NewFramer(f.conn, f.conn)
	for frame, err := frames.ReadFrame(); err == nil; frame, err = frames.ReadFrame() {
		header := frame.Header()
		ends := header.Type == http2.FrameHeaders && header.Flags.Has(http2.FlagHeadersEndStream)
		if header.Type == http2.FrameData {
			f.data.Add(1)
		}
		if header.StreamID > 0 && (ends || header.Type == http2.FrameRSTStream) {
			ended[header.StreamID] = true
			f.ended.Store(int64(len(ended)))
		}
	}
}

// Begin sends the header of a call, with more fields in HPACK, and returns its stream. Its message may follow.
func (f *stranger) Begin(method string, more ...byte) (stream uint32, err error) {
	var block bytes.Buffer
	fields := hpack.NewEncoder(&block)
	for _, field := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", method}, {":authority", "sash"},
		{"content-type", "application/grpc"}, {"te", "trailers"},
	} {
		_ = fields.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
	}
	stream = f.next
	f.next += 2
	return stream, f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: append(block.Bytes(), more...), EndHeaders: true})
}

// Floods of frames that cost their sender little, of one kind over a connection, take neither memory nor goroutines without bound, and
// others are answered meanwhile.
func TestFloodsOfFrames(t *testing.T) {
	w := begin(t, text, nil)
	begun := func(f *stranger, more ...byte) uint32 {
		stream, _ := f.Begin(pb.RateLimitService_ShouldRateLimit_FullMethodName, more...) // what follows fails, too
		return stream
	}
	garbage := bytes.Repeat([]byte{0x00, 0x01, 'a', 0x01, 'b'}, 2000) // of HPACK: a: b, not indexed
	for what, one := range map[string]func(f *stranger, first bool) error{
		"calls that are reset at once": func(f *stranger, _ bool) error { return f.WriteRSTStream(begun(f), http2.ErrCodeCancel) },
		"pings":                        func(f *stranger, _ bool) error { return f.WritePing(false, [8]byte{}) },
		"settings": func(f *stranger, _ bool) error {
			return f.WriteSettings(http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: 1})
		},
		"windows":           func(f *stranger, _ bool) error { return f.WriteWindowUpdate(0, 1) },
		"data of no stream": func(f *stranger, _ bool) error { return f.WriteData(1_000_001, false, garbage) },
		"a header without an end": func(f *stranger, first bool) error {
			if first {
				return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: garbage})
			}
			return f.WriteContinuation(1, false, garbage)
		},
		"large headers": func(f *stranger, _ bool) error { begun(f, garbage...); return f.WritePing(false, [8]byte{}) },
		"a message that is too large": func(f *stranger, first bool) error {
			if !first {
				return f.WriteData(1, false, garbage)
			}
			return f.WriteData(begun(f), false, []byte{0, 0x7f, 0xff, 0xff, 0xff})
		},
	} {
		t.Run(what, func(t *testing.T) {
			w.ask(request("ip=a"))
			before, goroutines := heap(), runtime.NumGoroutine()
			f, sent := meet(t, w.conn.Target()), 0
			for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end) && one(f, sent == 0) == nil; {
				sent++
			}
			began := time.Now()
			w.ask(request("ip=a"))
			took, more, grown := time.Since(began), runtime.NumGoroutine()-goroutines, heap()-before
			t.Logf("%d frames; an answer took %v; %d goroutines and %d KiB more", sent, took, more, grown>>10)
			if took > 5*time.Second || more > 500 || grown > 16<<20 {
				t.Error("that is too much")
			}
		})
	}
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
