package serve

import (
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rls "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/types/known/anypb"

	"example.com/sash/internal/redistest"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/degrade"
	"example.com/sash/service/internal/envoy"
	"example.com/sash/service/internal/servertest"
)

// health returns what /healthz says.
func health(t *testing.T, at Listening) (h degrade.Health) {
	t.Helper()
	status, text := send(t, http.MethodGet, at.HTTP, "/healthz", "")
	if status != http.StatusOK || json.Unmarshal([]byte(text), &h) != nil {
		t.Fatalf("%d %s", status, text)
	}
	return h
}

// Load balancers that ask for it send nothing while Redis does not answer, or without a configuration, over either protocol.
// The empty name says that the process serves.
func TestReadinessOverBothProtocols(t *testing.T) {
	redis := redistest.Start(t)
	path := filepath.Join(t.TempDir(), "limits.yaml")
	at := running(t, Options{
		Redis: "redis://" + redis.Addr(), GRPC: "127.0.0.1:0", Variables: envoy.Variables{
			Config: config.Source{Path: path}, StartWithoutConfig: true, ReadyNeedsRedis: true, ReadyNeedsConfig: true,
		},
	})
	conn := servertest.Must(grpc.NewClient(at.GRPC.String(), grpc.WithTransportCredentials(insecure.NewCredentials())))(t)
	defer func() { _ = conn.Close() }()
	is := func(name string, want healthpb.HealthCheckResponse_ServingStatus) bool {
		res := servertest.Must(healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: name}))(t)
		return res.Status == want
	}
	follow := func(when string, ready bool) {
		code, status := http.StatusInternalServerError, healthpb.HealthCheckResponse_NOT_SERVING
		if ready {
			code, status = http.StatusOK, healthpb.HealthCheckResponse_SERVING
		}
		servertest.Wait(t, when+": /healthcheck is another", func() bool {
			got, _ := send(t, http.MethodGet, at.HTTP, "/healthcheck", "")
			return got == code
		})
		servertest.Wait(t, when+": the health of ratelimit is another", func() bool { return is("ratelimit", status) })
		if !is("", healthpb.HealthCheckResponse_SERVING) {
			t.Errorf("%s: the process does not serve", when)
		}
	}
	follow("without a configuration", false)
	servertest.Check(t, os.WriteFile(path, []byte("domain: d\n"), 0o600))
	follow("with a configuration", true)
	redis.Stop()
	follow("without Redis", false)
	redis.Restart()
	follow("with Redis again", true)
}

// A management server sends what a test gives it, whatever its client answers.
type management struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
	send chan *discovery.DiscoveryResponse
}

func (m *management) StreamAggregatedResources(stream grpc.BidiStreamingServer[discovery.DiscoveryRequest, discovery.DiscoveryResponse]) error {
	for {
		select {
		case res := <-m.send:
			if err := stream.Send(res); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return nil
		}
	}
}

// set sends a configuration of a rule for each number of units: more than one have the domain twice.
func (m *management) set(t *testing.T, version string, units ...uint32) {
	t.Helper()
	res := &discovery.DiscoveryResponse{VersionInfo: version, TypeUrl: envoy.TypeURL, Nonce: version}
	for _, n := range units {
		limit := &rls.RateLimitPolicy{Unit: rls.RateLimitUnit_HOUR, RequestsPerUnit: n}
		named := []*rls.RateLimitDescriptor{{Key: "remote_address", RateLimit: limit}}
		res.Resources = append(res.Resources, servertest.Must(anypb.New(&rls.RateLimitConfig{Name: "demo", Domain: "demo", Descriptors: named}))(t))
	}
	m.send <- res
}

// A service whose management server insists on a wrong configuration answers on its ports, says what is wrong once, and
// uses the valid one when it comes.
func TestAServiceListensWithoutAUsableConfiguration(t *testing.T) {
	server := &management{send: make(chan *discovery.DiscoveryResponse, 2)}
	server.set(t, "1", 10, 20)
	server.set(t, "1", 10, 20)
	listener := servertest.Must(new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	over := grpc.NewServer()
	discovery.RegisterAggregatedDiscoveryServiceServer(over, server)
	go func() { _ = over.Serve(listener) }()
	defer over.Stop()

	log := &servertest.Log{}
	opts := Options{Admin: "127.0.0.1:0", Log: slog.New(slog.NewTextHandler(log, nil))}
	opts.Management = &envoy.Source{Server: listener.Addr().String(), Retry: 10 * time.Millisecond}
	opts.Protocol.Counting = &decide.Counting{Over: decide.NewOverLimit(0)}
	at, stop := start(t, opts)
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
	_, counted := send(t, http.MethodGet, at.Admin, "/stats", "")
	has(t, counted, "ratelimit.localcache.entryCount: 0")
	if err := stop(); err != nil {
		t.Error(err)
	}
	if n := strings.Count(log.String(), "the first configuration is wrong"); n != 1 {
		t.Errorf("the error is logged %d times:\n%s", n, log)
	}
}
