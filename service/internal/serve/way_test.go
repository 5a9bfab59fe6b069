package serve

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"example.com/sash/driver"
	"example.com/sash/memstore"
	"example.com/sash/service/internal/httpapi"
	"example.com/sash/service/internal/resp"
	"example.com/sash/service/internal/rls"
	"example.com/sash/service/internal/servertest"
)

// traced reports the functions of this repository that a decision came through, the port last.
type traced struct {
	*memstore.Store
	way chan []string
}

func (s traced) Decide(ctx context.Context, req driver.Request) (driver.Answer, error) {
	var at [100]uintptr
	var way []string
	frames := runtime.CallersFrames(at[:runtime.Callers(2, at[:])])
	for frame, more := frames.Next(); more; frame, more = frames.Next() {
		if name, ours := strings.CutPrefix(frame.Function, "example.com/sash"); ours {
			way = append(way, name)
		}
	}
	s.way <- way
	return s.Store.Decide(ctx, req)
}

// A call that nothing delays is decided by the goroutine that read it, a few frames from its port.
func TestTheWayOfARequestIsShort(t *testing.T) {
	store := traced{memstore.New(nil), make(chan []string, 1)}
	d := servertest.Decider(t, store, "domain: d\ndescriptors:\n- {key: k, limits: [9/1h]}\n")
	for name, port := range map[string]struct {
		frames, packages int
		serve            func(context.Context, net.Listener) error
		ask              func(net.Addr) error
	}{
		"HTTP": {10, 5, func(ctx context.Context, on net.Listener) error {
			return httpapi.Server{}.Serve(ctx, on, httpapi.Recover(httpapi.New(d, nil), slog.Default(), func() {}))
		}, func(addr net.Addr) error {
			send(t, http.MethodPost, addr, "/v1/allow", `{"domain":"d","entries":[{"key":"k"}]}`)
			return nil
		}},
		"Envoy": {9, 3, func(ctx context.Context, on net.Listener) error { return rls.Server{}.Serve(ctx, on, rls.New(d, nil)) },
			func(addr net.Addr) error {
				to, err := grpc.NewClient(addr.String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
				if err == nil {
					_, err = pb.NewRateLimitServiceClient(to).ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: "d",
						Descriptors: []*common.RateLimitDescriptor{{Entries: []*common.RateLimitDescriptor_Entry{{Key: "k"}}}}})
				}
				return errors.Join(err, to.Close())
			}},
		"RESP": {12, 4, func(ctx context.Context, on net.Listener) error {
			return resp.Server{}.Serve(ctx, on, resp.New(d, nil))
		},
			func(addr net.Addr) error {
				client := redis.NewClient(&redis.Options{Addr: addr.String()})
				return errors.Join(client.Do(t.Context(), "SASH.ALLOW", "d", "ENTRY", "k", "v").Err(), client.Close())
			}},
	} {
		on, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- port.serve(ctx, on) }()
		if err := port.ask(on.Addr()); err != nil {
			t.Fatal(name, err)
		}
		way, packages := <-store.way, make(map[string]bool)
		for _, at := range way {
			name, _, _ := strings.Cut(at[strings.LastIndex(at, "/")+1:], ".")
			packages[name] = true
		}
		if len(way) > port.frames || len(packages) > port.packages {
			t.Errorf("%s: %d frames of %d packages, want %d of %d: %q", name, len(way), len(packages), port.frames, port.packages, way)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}
