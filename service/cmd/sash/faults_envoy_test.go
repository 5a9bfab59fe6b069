package main

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/sash/internal/redistest"
	"example.com/sash/service/internal/servertest"
)

// A timed client keeps the code and the duration of its last call.
type timed struct {
	pb.RateLimitServiceClient
	code codes.Code
	took time.Duration
}

func (c *timed) ShouldRateLimit(ctx context.Context, req *pb.RateLimitRequest, opts ...grpc.CallOption) (*pb.RateLimitResponse, error) {
	began := time.Now()
	res, err := c.RateLimitServiceClient.ShouldRateLimit(ctx, req, opts...)
	c.took, c.code = time.Since(began), status.Code(err)
	return res, err
}

// throughEnvoy calls as decide does, through an Envoy that answers 503 if it gets no answer. Envoy's protocol has no
// source and no cause: a closed rule is UNAVAILABLE, and nothing else is an error.
func (p *service) throughEnvoy(t *testing.T) func(t *testing.T, key string, cost int64) outcome {
	client := &timed{RateLimitServiceClient: p.dial(t)}
	return func(t *testing.T, key string, cost int64) outcome {
		t.Helper()
		config := fmt.Sprintf(`
domain: d
timeout: 10s
failure_mode_deny: true
status_on_error: {code: 503}
rate_limits: [{actions: [{generic_key: {descriptor_key: %s, descriptor_value: a}}], hits_addend: {number: %d}}]
`, key, cost)
		e, err := newStandIn(config, envoyProxy{Upstream: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), Service: client})
		if err != nil {
			t.Fatal(err)
		}
		o := outcome{status: through(e, "192.0.2.1").Code, took: client.took}
		if want := map[bool]codes.Code{true: codes.Unavailable, false: codes.OK}[o.status == http.StatusServiceUnavailable]; client.code != want {
			t.Errorf("%s at cost %d: %v with %d", key, cost, client.code, o.status)
		}
		return o
	}
}

// Envoy waits for 20 ms, which is less than the budget. The calls that it gives up still count as failures of Redis, so
// failure modes answer soon.
func TestEnvoyWithItsOwnTimeoutWhileRedisHangs(t *testing.T) {
	server := redistest.Start(t)
	p := servePolicies(t, "--redis", server.Addr(), "--instances", "1")
	p.normal(t)
	server.Pause()
	const filter = "domain: d\nfailure_mode_deny: true\nrate_limits: [{actions: [{generic_key: {descriptor_key: open, descriptor_value: a}}]}]\n"
	e := p.envoy(t, filter)
	servertest.Wait(t, "Envoy is not answered", func() bool { return through(e, "192.0.2.1").Code == 200 })
	if n := e.Unanswered.Load(); n > 100 { // about ten: five failures of 100 ms, which overlap
		t.Errorf("%d requests were given up on before a failure mode answered", n)
	}
	server.Resume()
}

// With a budget of more than a second the store still has all of it, and then the failure mode answers.
func TestEnvoyWithALongBudgetWhileRedisHangs(t *testing.T) {
	server := redistest.Start(t)
	p := servePolicies(t, "--redis", server.Addr(), "--instances", "1", "--budget", "1100ms")
	p.normal(t)
	server.Pause()
	if o := p.throughEnvoy(t)(t, "open", 1); o.status != http.StatusOK {
		t.Errorf("by the failure mode: %+v", o)
	}
	server.Resume()
}
