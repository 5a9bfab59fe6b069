package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/anypb"

	"example.com/sash/internal/redistest"
	"example.com/sash/service/internal/servertest"
)

// dial returns a gRPC client of the service.
func (p *service) dial(t *testing.T) pb.RateLimitServiceClient {
	t.Helper()
	conn, err := grpc.NewClient(p.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return pb.NewRateLimitServiceClient(conn)
}

// asks returns a function that asks for descriptors, each written "key=value key=value", as Envoy does.
func (p *service) asks(t *testing.T, domain string) func(descriptors ...string) (*pb.RateLimitResponse, error) {
	client := p.dial(t)
	return func(descriptors ...string) (*pb.RateLimitResponse, error) {
		req := &pb.RateLimitRequest{Domain: domain}
		for _, text := range descriptors {
			d := &common.RateLimitDescriptor{}
			for field := range strings.FieldsSeq(text) {
				key, value, _ := strings.Cut(field, "=")
				d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: key, Value: value})
			}
			req.Descriptors = append(req.Descriptors, d)
		}
		return client.ShouldRateLimit(t.Context(), req)
	}
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	req := newRequest(t, http.MethodGet, url, nil)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, _ := io.ReadAll(res.Body)
	return res.StatusCode, string(body)
}

const edge = `
domain: edge
descriptors:
  - key: remote_address
    rate_limit: {unit: hour, requests_per_unit: 3}
  - key: generic_key
    value: login
    descriptors:
      - key: user
        rate_limit: {unit: day, requests_per_unit: LIMIT}
`

// A deployment of Envoy's rate limit service, with its files and environment, changes only the image.
func TestInPlaceOfEnvoysService(t *testing.T) {
	redis := redistest.Start(t)
	root := t.TempDir()
	release := func(name, limit string) {
		put(t, root+"/"+name+"/ratelimit/config/edge.yaml", strings.ReplaceAll(edge, "LIMIT", limit))
	}
	release("one", "2")
	release("two", "4")
	put(t, root+"/three/ratelimit/config/edge.yaml", "domain: edge\ndescriptors:\n- kei: x\n")
	point := func(to string) {
		if err := os.Symlink(to, root+"/new"); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(root+"/new", root+"/current"); err != nil {
			t.Fatal(err)
		}
	}
	point("one")
	environment := []string{
		"RUNTIME_ROOT=" + root + "/current", "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_WATCH_ROOT=true",
		"HOST=127.0.0.1", "PORT=0", "GRPC_HOST=127.0.0.1", "GRPC_PORT=0", "DEBUG_HOST=127.0.0.1", "DEBUG_PORT=0",
		"REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + redis.Addr(), "REDIS_TYPE=SINGLE", "CACHE_KEY_PREFIX=edge-limits:",
		"LIMIT_RESPONSE_HEADERS_ENABLED=true", "LIMIT_RESET_HEADER=X-RateLimit-Reset", "PROMETHEUS_MAPPER_YAML=x.yaml", "LOG_LEVEL=INFO", "LOG_FORMAT=json",
	}
	p, other := serveIn(t, environment, "--drain-delay", "0s"), serveIn(t, environment, "--drain-delay", "0s")
	first, second := p.asks(t, "edge"), other.asks(t, "edge")

	call := func(ask func(...string) (*pb.RateLimitResponse, error), address, user string, code pb.RateLimitResponse_Code, remaining string) map[string]string {
		t.Helper()
		descriptors := []string{"remote_address=" + address}
		if user != "" {
			descriptors = append(descriptors, "generic_key=login user="+user)
		}
		res, err := ask(descriptors...)
		header := make(map[string]string)
		for _, h := range res.GetResponseHeadersToAdd() {
			header[h.Key] = h.Value
		}
		if err != nil || res.OverallCode != code || header["RateLimit-Remaining"] != remaining {
			t.Errorf("%s %s: %v, %v; want %v with %s left", address, user, res, err, code, remaining)
		}
		return header
	}
	const ok, over = pb.RateLimitResponse_OK, pb.RateLimitResponse_OVER_LIMIT
	call(first, "192.0.2.1", "", ok, "2")
	call(second, "192.0.2.1", "", ok, "1")
	call(first, "192.0.2.1", "ann", ok, "0")
	if header := call(second, "192.0.2.1", "", over, "0"); header["X-RateLimit-Reset"] == "" || header["RateLimit-Limit"] != "3" {
		t.Errorf("headers %v", header)
	}
	call(first, "192.0.2.2", "ann", ok, "0")
	call(first, "192.0.2.2", "ann", over, "0")
	call(first, "192.0.2.2", "", ok, "1") // the refusal did not charge the address
	if keys := fmt.Sprint(redis.Must(t, "KEYS", "*")); strings.Count(keys, "edge-limits:log:")-strings.Count(keys, "edge-limits:log:probe ") != 3 {
		t.Errorf("keys %s", keys)
	}

	point("two")
	servertest.Wait(t, "the new release is not in use", func() bool {
		_, text := get(t, p.admin+"/rlconfig")
		return strings.Contains(text, "edge.generic_key_login.user: 4/1d")
	})
	call(first, "192.0.2.3", "ann", ok, "1") // charges are kept
	point("three")
	servertest.Wait(t, "the wrong release is not shown", func() bool {
		_, text := get(t, p.admin+"/rlconfig")
		return strings.Contains(text, `unknown key "kei"`) && strings.Contains(text, "edge.generic_key_login.user: 4/1d")
	})
	call(first, "192.0.2.3", "ann", ok, "0") // the last valid release decides

	_, text := get(t, p.admin+"/stats")
	for _, want := range []string{
		"ratelimit.service.config_load_error: 1\n", "ratelimit.service.config_load_success: 2\n",
		"ratelimit.service.rate_limit.edge.remote_address.total_hits: ", "ratelimit.service.rate_limit.edge.generic_key_login.user.over_limit: 1\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if _, text := get(t, p.admin+"/metrics"); !strings.Contains(text, `ratelimit_service_rate_limit_over_limit{domain="edge",key1="generic_key_login",key2="user"} 1`) {
		t.Errorf("metrics:\n%s", text)
	}
	if status, text := get(t, p.url+"/healthcheck"); status != 200 || text != "OK" {
		t.Errorf("health: %d %s", status, text)
	}
	for i, want := range []int{200, 200, 200, 429} {
		if got, _ := post(t, p.url+"/json", `{"domain":"edge","descriptors":[{"entries":[{"key":"remote_address","value":"json"}]}]}`); got != want {
			t.Errorf("JSON call %d: %d, want %d", i+1, got, want)
		}
	}
	for _, p := range []*service{p, other} {
		if err := p.stop(t); err != nil {
			t.Errorf("the service ended with %v: %s", err, p.logs)
		}
	}
	if !strings.Contains(p.logs.String(), "PROMETHEUS_MAPPER_YAML: metrics have the names") {
		t.Errorf("variables without effect are not logged: %s", p.logs)
	}
}

// A management is a server that sends one configuration, and then only receives.
type management struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
	resource *anypb.Any
}

func (m *management) StreamAggregatedResources(stream grpc.BidiStreamingServer[discovery.DiscoveryRequest, discovery.DiscoveryResponse]) error {
	for sent := false; ; sent = true {
		req, err := stream.Recv()
		if err != nil || sent {
			<-stream.Context().Done()
			return err
		}
		err = stream.Send(&discovery.DiscoveryResponse{VersionInfo: "1", Nonce: "1", TypeUrl: req.GetTypeUrl(), Resources: []*anypb.Any{m.resource}})
		if err != nil {
			return err
		}
	}
}

func TestConfigurationFromAManagementServer(t *testing.T) {
	resource, err := anypb.New(&rls.RateLimitConfig{Name: "edge", Domain: "edge", Descriptors: []*rls.RateLimitDescriptor{
		{Key: "remote_address", RateLimit: &rls.RateLimitPolicy{Unit: rls.RateLimitUnit_HOUR, RequestsPerUnit: 1}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	discovery.RegisterAggregatedDiscoveryServiceServer(server, &management{resource: resource})
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)

	redis := redistest.Start(t)
	p := serveIn(t, []string{
		"CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL=" + listener.Addr().String(),
		"HOST=127.0.0.1", "PORT=0", "GRPC_HOST=127.0.0.1", "GRPC_PORT=0", "DEBUG_HOST=127.0.0.1", "DEBUG_PORT=0",
		"REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + redis.Addr(),
	}, "--drain-delay", "0s")
	ask := p.asks(t, "edge")
	for i, want := range []pb.RateLimitResponse_Code{pb.RateLimitResponse_OK, pb.RateLimitResponse_OVER_LIMIT} {
		if res, err := ask("remote_address=192.0.2.9"); err != nil || res.OverallCode != want {
			t.Errorf("call %d: %v, %v; want %v", i+1, res, err, want)
		}
	}
	if err := p.stop(t); err != nil {
		t.Errorf("the service ended with %v: %s", err, p.logs)
	}
}
