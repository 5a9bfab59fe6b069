package main

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	spanpb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
)

// A collector of OpenTelemetry keeps what it receives over HTTP.
type collector struct {
	url string

	mu      sync.Mutex
	spans   []*spanpb.Span    // guarded by mu
	service map[string]string // guarded by mu: of the last span's resource
	more    chan struct{}     // has room for one
}

func (c *collector) take(data *spanpb.TracesData) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range data.ResourceSpans {
		c.service = attributes(resource.Resource.Attributes)
		for _, scope := range resource.ScopeSpans {
			c.spans = append(c.spans, scope.Spans...)
		}
	}
	select {
	case c.more <- struct{}{}:
	default:
	}
}

func attributes(all []*commonpb.KeyValue) map[string]string {
	m := make(map[string]string)
	for _, a := range all {
		switch v := a.Value.Value.(type) {
		case *commonpb.AnyValue_StringValue:
			m[a.Key] = v.StringValue
		default:
			m[a.Key] = fmt.Sprint(a.Value)
		}
	}
	return m
}

// collect starts a collector, which ends with the test.
func collect(t *testing.T) *collector {
	t.Helper()
	c := &collector{more: make(chan struct{}, 1)}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/traces" {
			http.NotFound(w, r)
			return
		}
		text, _ := io.ReadAll(r.Body)
		var spans spanpb.TracesData
		_ = proto.Unmarshal(text, &spans)
		c.take(&spans)
		w.Header().Set("Content-Type", "application/x-protobuf") // of an empty answer
	}))
	t.Cleanup(web.Close)
	c.url = web.URL
	return c
}

// until waits for a condition on what was received.
func (c *collector) until(t *testing.T, what string, done func() bool) {
	t.Helper()
	timeout := time.After(20 * time.Second)
	for {
		c.mu.Lock()
		ok := done()
		c.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-c.more:
		case <-timeout:
			t.Fatalf("%s did not come; there are spans %v", what, c.spans)
		}
	}
}

const userLimits = `
domain: d
descriptors:
- {key: user, limits: [1/1h]}
- {key: other, limits: [5/1h]}
`

// callInATrace calls a service once over gRPC and twice over HTTP, as part of a trace; the HTTP calls are refused.
func callInATrace(t *testing.T, p *service, traceparent string) {
	t.Helper()
	ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", traceparent)
	req := &pb.RateLimitRequest{Domain: "d"}
	for _, key := range []string{"other", "user"} {
		req.Descriptors = append(req.Descriptors, &common.RateLimitDescriptor{
			Entries: []*common.RateLimitDescriptor_Entry{{Key: key, Value: "secret-ann"}},
		})
	}
	if _, err := p.dial(t).ShouldRateLimit(ctx, req); err != nil {
		t.Fatal(err)
	}
	for path, body := range map[string]string{
		"/v1/allow": `{"domain":"d","entries":[{"key":"user","value":"secret-ann"}]}`,
		"/json":     `{"domain":"d","descriptors":[{"entries":[{"key":"user","value":"secret-ann"}]}]}`,
	} {
		r := newRequest(t, http.MethodPost, p.url+path, strings.NewReader(body))
		r.Header.Set("Traceparent", traceparent)
		r.Header.Set("Content-Type", "application/json")
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != http.StatusTooManyRequests {
			t.Fatalf("%s: %s", path, res.Status)
		}
	}
}

func TestTracesReachACollector(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "limits.yaml")
	put(t, file, userLimits)
	c := collect(t)
	p := spawn(t, []string{
		"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.url, "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf",
		"OTEL_BSP_SCHEDULE_DELAY=20", "OTEL_RESOURCE_ATTRIBUTES=team=edge",
	}, "--config", file)
	const trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	callInATrace(t, p, "00-"+trace+"-"+parent+"-01")
	c.until(t, "three spans", func() bool { return len(c.spans) == 3 })
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.service["service.name"] != "sash" || c.service["team"] != "edge" {
		t.Errorf("the resource is %v", c.service)
	}
	outcomes := map[string]int{}
	for _, span := range c.spans {
		if hex.EncodeToString(span.TraceId) != trace || hex.EncodeToString(span.ParentSpanId) != parent {
			t.Errorf("a span of trace %x below %x, want %s below %s", span.TraceId, span.ParentSpanId, trace, parent)
		}
		if span.Name != "sash.decide" || span.EndTimeUnixNano < span.StartTimeUnixNano {
			t.Errorf("%v", span)
		}
		if strings.Contains(span.String(), "secret-ann") {
			t.Errorf("a span has a value of the request: %v", span)
		}
		a := attributes(span.Attributes)
		outcomes[fmt.Sprint(a["sash.outcome"], " ", a["sash.domain"], " ", a["sash.rule"], " ", a["sash.source"], " ", a["sash.limit"])]++
	}
	if outcomes["allowed d other store "] != 1 || outcomes["refused d user store 1/1h"] != 2 {
		t.Errorf("%v", outcomes)
	}
}

// The service sends the spans in memory before it ends.
func TestTheLastSpansAreSent(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "limits.yaml")
	put(t, file, userLimits)
	c := collect(t)
	p := spawn(t, []string{
		"TRACING_ENABLED=true", "TRACING_EXPORTER_PROTOCOL=http", "TRACING_SERVICE_NAMESPACE=edge", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=" + c.url + "/v1/traces",
		"OTEL_BSP_SCHEDULE_DELAY=3600000",
	}, "--config", file, "--show-keys", "--log-refusals")
	callInATrace(t, p, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	if err := p.stop(t); err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.spans) != 3 || c.service["service.name"] != "RateLimit" || c.service["service.namespace"] != "edge" {
		t.Errorf("%d spans of %v", len(c.spans), c.service)
	}
	var keys int
	for _, span := range c.spans {
		if strings.Contains(attributes(span.Attributes)["sash.key"], "secret-ann") {
			keys++
		}
	}
	if keys != 3 || !strings.Contains(p.logs.String(), "msg=refused") || !strings.Contains(p.logs.String(), "limit=1/1h") {
		t.Errorf("%d spans have a key with --show-keys; logs: %s", keys, p.logs)
	}
}

// A collector that is away delays neither the start nor answers, and the end only for seconds.
func TestACollectorThatIsAway(t *testing.T) {
	t.Parallel()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := listener.Addr().String()
	_ = listener.Close()
	p := spawn(t, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + addr, "USE_STATSD=true", "STATSD_HOST=127.0.0.1", "STATSD_PORT=" + addr[strings.LastIndex(addr, ":")+1:]})
	res, err := http.Post(p.url+"/v1/allow", "application/json", bytes.NewReader([]byte(`{"domain":"demo","entries":[{"key":"remote_address","value":"a"}]}`)))
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Errorf("%s", res.Status)
	}
	if err := p.stop(t); err != nil {
		t.Errorf("%v: %s", err, p.logs)
	}
	if !strings.Contains(p.logs.String(), "could not be exported") {
		t.Errorf("the log does not report it: %s", p.logs)
	}
}

// The variables of a deployment of Envoy's service, through the whole command.
func TestStatsdGetsWhatADeploymentSays(t *testing.T) {
	t.Parallel()
	server, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	_, port, _ := net.SplitHostPort(server.LocalAddr().String())
	p := serveIn(t, []string{"USE_STATSD=true", "STATSD_PROTOCOL=udp", "STATSD_HOST=127.0.0.1", "STATSD_PORT=" + port, "STATS_FLUSH_INTERVAL=50ms", "EXTRA_TAGS=team:edge"}, freePorts...)
	res, err := http.Post(p.url+"/v1/allow", "application/json", strings.NewReader(`{"domain":"demo","entries":[{"key":"remote_address","value":"a"}],"cost":3}`))
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	const want = "ratelimit.service.rate_limit.demo.remote_address.total_hits.__team=edge:3|c\n"
	_ = server.SetReadDeadline(time.Now().Add(20 * time.Second))
	buffer := make([]byte, 1<<16)
	for got := ""; !strings.Contains(got, want); {
		n, _, err := server.ReadFrom(buffer)
		if err != nil {
			t.Fatalf("%v, after %q", err, got)
		}
		got += string(buffer[:n])
	}
}
