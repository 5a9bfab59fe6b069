package rls

import (
	"testing"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"example.com/sash/service/internal/servertest"
)

func TestFloodsOfFrames(t *testing.T) {
	w := begin(t, text, nil)
	servertest.Floods(t, pb.RateLimitService_ShouldRateLimit_FullMethodName, func(t testing.TB) *servertest.Frames {
		return servertest.DialFrames(t, w.conn.Target())
	}, func() { w.ask(request("ip=a")) })
}
