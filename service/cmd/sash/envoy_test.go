package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/anypb"

	"example.com/sash/internal/redistest"
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

// envoy returns an Envoy that calls the service, with this configuration of its filter. Its upstream answers 200 and
// x-upstream.
func (p *service) envoy(t *testing.T, config string) *standIn {
	t.Helper()
	upstream := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Header().Set("x-upstream", "reached") })
	f, err := newStandIn(config, envoyProxy{Upstream: upstream, Service: p.dial(t), Cluster: "edge", Destination: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// through sends a request from an address through an Envoy. Headers are name, value, ….
func through(f http.Handler, address string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = address + ":1234"
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	rec := httptest.NewRecorder()
	f.ServeHTTP(rec, r)
	return rec
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

// eventually waits for the effect of a changed file.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	for !holds() {
		select {
		case <-deadline:
			t.Fatalf("after ten seconds it is not so that %s", what)
		case <-time.After(20 * time.Millisecond):
		}
	}
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

// What Envoy sends for edge.
const filter = `
domain: edge
timeout: 5s
failure_mode_deny: true
rate_limits:
  - actions: [{remote_address: {}}]
  - actions: [{generic_key: {descriptor_value: login}}, {request_headers: {header_name: x-user, descriptor_key: user}}]
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
	p, other := serveIn(t, environment), serveIn(t, environment)
	e, second := p.envoy(t, filter), other.envoy(t, filter)

	call := func(of http.Handler, address, user string, status int, remaining string) http.Header {
		t.Helper()
		var headers []string
		if user != "" {
			headers = []string{"x-user", user}
		}
		res := through(of, address, headers...)
		if res.Code != status || res.Header().Get("RateLimit-Remaining") != remaining {
			t.Errorf("%s %s: %d with %v, want %d with %s left", address, user, res.Code, res.Header(), status, remaining)
		}
		return res.Header()
	}
	call(e, "192.0.2.1", "", 200, "2")
	call(second, "192.0.2.1", "", 200, "1")
	call(e, "192.0.2.1", "ann", 200, "0")
	if header := call(second, "192.0.2.1", "", 429, "0"); header.Get("X-RateLimit-Reset") == "" || header.Get("RateLimit-Limit") != "3" {
		t.Errorf("headers %v", header)
	}
	call(e, "192.0.2.2", "ann", 200, "0")
	call(e, "192.0.2.2", "ann", 429, "0")
	call(e, "192.0.2.2", "", 200, "1") // the refusal did not charge the address
	if keys := fmt.Sprint(redis.Must(t, "KEYS", "*")); strings.Count(keys, "edge-limits:log:")-strings.Count(keys, "edge-limits:log:probe ") != 3 {
		t.Errorf("keys %s", keys)
	}

	point("two")
	eventually(t, "the new release is in use", func() bool {
		_, text := get(t, p.admin+"/rlconfig")
		return strings.Contains(text, "edge.generic_key_login.user: 4/1d")
	})
	call(e, "192.0.2.3", "ann", 200, "1") // charges are kept
	point("three")
	eventually(t, "the wrong release is shown", func() bool {
		_, text := get(t, p.admin+"/rlconfig")
		return strings.Contains(text, `unknown key "kei"`) && strings.Contains(text, "edge.generic_key_login.user: 4/1d")
	})
	call(e, "192.0.2.3", "ann", 200, "0") // the last valid release decides

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
	})
	e := p.envoy(t, filter)
	for i, want := range []int{200, 429} {
		if res := through(e, "192.0.2.9"); res.Code != want {
			t.Errorf("call %d: %d, want %d", i+1, res.Code, want)
		}
	}
	if err := p.stop(t); err != nil {
		t.Errorf("the service ended with %v: %s", err, p.logs)
	}
}
