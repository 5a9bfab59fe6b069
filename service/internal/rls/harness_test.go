package rls

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
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
	calls *calls // bounds; nil is the default

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

// everything lets every caller do all that the protocol has.
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
	cfg, err := config.ParseBy(w.defaults, false, config.File{Name: "x.yaml", Text: []byte(text)})
	if err != nil {
		t.Fatal(err)
	}
	decider, err := decide.New(cfg, store)
	if err != nil {
		t.Fatal(err)
	}
	if opts == nil {
		opts = &Options{}
	}
	if opts.Access == nil {
		opts.Access = servertest.Gate(t, everything)
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	if opts.Stats != nil {
		decider.Observe(opts.Stats.Observe)
	}
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- Server{Log: opts.Log, calls: w.calls}.Serve(ctx, listener, New(decider, opts))
	}()
	w.stop = sync.OnceValue(func() error { cancel(); return <-ended })
	w.conn, err = grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
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
	res, err := w.client.ShouldRateLimit(w.t.Context(), req)
	if err != nil {
		w.t.Fatal(err)
	}
	return res
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
