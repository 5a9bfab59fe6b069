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

// traced reports the functions of this repository that a decision came through, the port last, and their packages.
type traced struct {
	*memstore.Store
	way      []string
	packages map[string]bool
}

func (s *traced) Decide(ctx context.Context, req driver.Request) (driver.Answer, error) {
	var at [100]uintptr
	s.way, s.packages = nil, make(map[string]bool)
	frames := runtime.CallersFrames(at[:runtime.Callers(2, at[:])])
	for frame, more := frames.Next(); more; frame, more = frames.Next() {
		if name, ours := strings.CutPrefix(frame.Function, "example.com/sash"); ours {
			in, _, _ := strings.Cut(name[strings.LastIndex(name, "/")+1:], ".")
			s.way, s.packages[in] = append(s.way, name), true
		}
	}
	return s.Store.Decide(ctx, req)
}

// A call that nothing delays is decided by the goroutine that read it, a few frames from its port.
func TestTheWayOfARequestIsShort(t *testing.T) {
	store := &traced{Store: memstore.New(nil)}
	d := servertest.Decider(t, store, "domain: d\ndescriptors:\n- {key: k, limits: [9/1h]}\n")
	check := func(port string, frames, packages int, serve func(context.Context, net.Listener) error, ask func(net.Addr) error) {
		on, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- serve(ctx, on) }()
		err = ask(on.Addr())
		stop()
		if err = errors.Join(err, <-ended); err != nil || len(store.way) > frames || len(store.packages) > packages {
			t.Errorf("%s: %v; %d frames of %d packages: %q", port, err, len(store.way), len(store.packages), store.way)
		}
	}
	check("HTTP", 10, 5, func(ctx context.Context, on net.Listener) error {
		return httpapi.Server{}.Serve(ctx, on, httpapi.Recover(httpapi.New(d, nil), slog.Default(), func() {}))
	}, func(addr net.Addr) error {
		send(t, http.MethodPost, addr, "/v1/allow", `{"domain":"d","entries":[{"key":"k"}]}`)
		return nil
	})
	check("Envoy", 9, 3, func(ctx context.Context, on net.Listener) error {
		return rls.Server{}.Serve(ctx, on, rls.New(d, nil))
	}, func(addr net.Addr) error {
		to, err := grpc.NewClient(addr.String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err == nil {
			_, err = pb.NewRateLimitServiceClient(to).ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: "d",
				Descriptors: []*common.RateLimitDescriptor{{Entries: []*common.RateLimitDescriptor_Entry{{Key: "k"}}}}})
		}
		return errors.Join(err, to.Close())
	})
	check("RESP", 12, 4, func(ctx context.Context, on net.Listener) error {
		return resp.Server{}.Serve(ctx, on, resp.New(d, nil))
	}, func(addr net.Addr) error {
		client := redis.NewClient(&redis.Options{Addr: addr.String()})
		return errors.Join(client.Do(t.Context(), "SASH.ALLOW", "d", "ENTRY", "k", "v").Err(), client.Close())
	})
}
