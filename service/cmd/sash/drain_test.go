package main

import (
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"example.com/sash/service/internal/servertest"
)

// Load balancers send requests until they have seen that health is down. The service answers those, over new connections
// too.
func TestServeAnswersUntilLoadBalancersHaveSeenThatItStops(t *testing.T) {
	p := spawn(t, nil, "--drain-delay", "1h") // the test ends it
	conn, err := grpc.NewClient(p.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	health := healthpb.NewHealthClient(conn)
	watching, err := health.Watch(ctx, &healthpb.HealthCheckRequest{Service: "ratelimit"})
	if err != nil {
		t.Fatal(err)
	}
	if res, err := watching.Recv(); err != nil || res.Status != healthpb.HealthCheckResponse_SERVING {
		t.Fatal(res, err)
	}
	if err := p.interrupt(); err != nil {
		t.Fatal(err)
	}
	if res, err := watching.Recv(); err != nil || res.Status != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Fatal(res, err)
	}
	fresh := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	for path, want := range map[string]int{"/healthz": 503, "/healthcheck": 500, "/openapi.yaml": 200} {
		res, err := fresh.Get(p.url + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, res.StatusCode, want)
		}
	}
	res, err := fresh.Post(p.url+"/v1/allow", "application/json", strings.NewReader(`{"domain":"demo","entries":[{"key":"remote_address","value":"a"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if res.StatusCode != 200 {
		t.Errorf("a request: %d %s", res.StatusCode, body)
	}
	other, err := grpc.NewClient(p.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	demo := &pb.RateLimitRequest{Domain: "demo", Descriptors: []*common.RateLimitDescriptor{{
		Entries: []*common.RateLimitDescriptor_Entry{{Key: "remote_address", Value: "a"}},
	}}}
	if _, err := pb.NewRateLimitServiceClient(other).ShouldRateLimit(ctx, demo); err != nil {
		t.Errorf("a call: %v", err)
	}
	if err := p.interrupt(); err != nil { // the second ends it at once
		t.Fatal(err)
	}
	select {
	case <-p.ended:
	case <-time.After(15 * time.Second):
		t.Error("the second signal does not end it")
	}
}

func TestServeEndsAfterTheDrainDelay(t *testing.T) {
	p := serve(t, "--drain-delay", "50ms")
	if err := p.stop(t); err != nil || !strings.Contains(p.logs.String(), "health is down") {
		t.Errorf("it ended with %v: %s", err, p.logs)
	}
}

// An orchestrator sends SIGTERM, and its load balancers need a while. Somebody at a terminal does not want to wait.
func TestOnlySIGTERMWaitsForLoadBalancers(t *testing.T) {
	for _, c := range []struct {
		signal os.Signal
		waits  bool
	}{{syscall.SIGTERM, true}, {os.Interrupt, false}} {
		p := run(t, exec.Command(binary, "serve", "--addr", "127.0.0.1:0", "--grpc-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0"))
		if err := p.cmd.Process.Signal(c.signal); err != nil {
			t.Fatal(err)
		}
		if c.waits {
			servertest.Wait(t, "health is not down", func() bool { return strings.Contains(p.logs.String(), "for=5s") })
			if err := p.cmd.Process.Signal(c.signal); err != nil { // the second ends it at once
				t.Fatal(err)
			}
		}
		<-p.ended
		if waits := strings.Contains(p.logs.String(), "health is down"); waits != c.waits {
			t.Errorf("%v waits %v: %s", c.signal, waits, p.logs)
		}
	}
}
