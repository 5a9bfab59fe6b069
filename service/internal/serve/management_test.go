package serve

import (
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rls "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"

	"example.com/sash/service/internal/envoy"
	"example.com/sash/service/internal/servertest"
)

// An insistent management server answers every request that does not accept its configuration with that configuration,
// at once, as those on go-control-plane do.
type insistent struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
	current atomic.Pointer[discovery.DiscoveryResponse]
}

// set makes a configuration the current one, of a rule for each number of units: more than one have the domain twice.
func (m *insistent) set(t *testing.T, version string, units ...uint32) {
	t.Helper()
	res := &discovery.DiscoveryResponse{VersionInfo: version, TypeUrl: envoy.TypeURL, Nonce: version}
	for _, n := range units {
		limit := &rls.RateLimitPolicy{Unit: rls.RateLimitUnit_HOUR, RequestsPerUnit: n}
		resource, err := anypb.New(&rls.RateLimitConfig{Name: "demo", Domain: "demo", Descriptors: []*rls.RateLimitDescriptor{{Key: "remote_address", RateLimit: limit}}})
		if err != nil {
			t.Fatal(err)
		}
		res.Resources = append(res.Resources, resource)
	}
	m.current.Store(res)
}

func (m *insistent) StreamAggregatedResources(stream grpc.BidiStreamingServer[discovery.DiscoveryRequest, discovery.DiscoveryResponse]) error {
	for {
		req, err := stream.Recv()
		if res := m.current.Load(); err == nil && req.GetVersionInfo() != res.VersionInfo {
			err = stream.Send(res)
		}
		if err != nil {
			return err
		}
	}
}

// A service whose management server insists on a wrong configuration answers on its ports, says what is wrong once, and
// uses the valid one when it comes.
func TestAServiceListensWithoutAUsableConfiguration(t *testing.T) {
	server := &insistent{}
	server.set(t, "1", 10, 20)
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	management := grpc.NewServer()
	discovery.RegisterAggregatedDiscoveryServiceServer(management, server)
	go func() { _ = management.Serve(listener) }()
	defer management.Stop()

	log := &servertest.Log{}
	at, stop := start(t, Options{
		Management: &envoy.Source{Server: listener.Addr().String(), Retry: 10 * time.Millisecond},
		Log:        slog.New(slog.NewTextHandler(log, nil)),
	})
	if h := health(t, at); h.Status != "degraded" || h.Cause != "configuration" {
		t.Errorf("%+v", h)
	}
	if status := allow(t, at); status != 503 {
		t.Errorf("a decision without a configuration is answered %d", status)
	}
	server.set(t, "2", 10)
	servertest.Wait(t, "the valid configuration is not used", func() bool { return health(t, at).Status == "ok" })
	if first, second := allow(t, at), allow(t, at); first != 200 || second != 429 {
		t.Errorf("status %d, then %d", first, second)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if n := strings.Count(log.String(), "the first configuration is wrong"); n != 1 {
		t.Errorf("the error is logged %d times:\n%s", n, log)
	}
}
