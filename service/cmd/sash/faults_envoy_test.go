package main

import (
	"context"
	"net/http"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"example.com/sash/internal/redistest"
	"example.com/sash/service/internal/servertest"
)

// overGRPC calls as decide does, over gRPC within a time. Envoy's protocol has no source and no cause: a closed rule is
// UNAVAILABLE, which is 503 here, and nothing else is an error.
func (p *service) overGRPC(t *testing.T, within time.Duration) func(t *testing.T, key string, cost int64) outcome {
	client := p.dial(t)
	return func(t *testing.T, key string, cost int64) outcome {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		began := time.Now()
		res, err := client.ShouldRateLimit(ctx, &pb.RateLimitRequest{Domain: "d", Descriptors: []*common.RateLimitDescriptor{{
			Entries: []*common.RateLimitDescriptor_Entry{{Key: key, Value: "a"}}, HitsAddend: wrapperspb.UInt64(uint64(cost)),
		}}})
		o := outcome{status: http.StatusOK, took: time.Since(began)}
		switch code := status.Code(err); {
		case code == codes.Unavailable, code == codes.DeadlineExceeded && within < time.Second: // by either end
			o.status = http.StatusServiceUnavailable
		case err != nil:
			t.Errorf("%s at cost %d: %v", key, cost, err)
		case res.OverallCode == pb.RateLimitResponse_OVER_LIMIT:
			o.status = http.StatusTooManyRequests
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
	ask, given := p.overGRPC(t, 20*time.Millisecond), 0
	servertest.Wait(t, "Envoy is not answered", func() bool { given++; return ask(t, "open", 1).status == http.StatusOK })
	if given > 100 { // about ten: five failures of 100 ms, which overlap
		t.Errorf("%d requests were given up on before a failure mode answered", given)
	}
	server.Resume()
}

// With a budget of more than a second the store still has all of it, and then the failure mode answers.
func TestEnvoyWithALongBudgetWhileRedisHangs(t *testing.T) {
	server := redistest.Start(t)
	p := servePolicies(t, "--redis", server.Addr(), "--instances", "1", "--budget", "1100ms")
	p.normal(t)
	server.Pause()
	if o := p.overGRPC(t, 10*time.Second)(t, "open", 1); o.status != http.StatusOK {
		t.Errorf("by the failure mode: %+v", o)
	}
	server.Resume()
}
