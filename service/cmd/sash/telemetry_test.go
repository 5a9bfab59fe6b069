package main

import (
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

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
		m[a.Key] = a.Value.GetStringValue()
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
	if _, err := p.dial(t).ShouldRateLimit(ctx, descriptors("d", "other=secret-ann", "user=secret-ann")); err != nil {
		t.Fatal(err)
	}
	for path, body := range map[string]string{
		"/v1/allow": subject("d", "user", "secret-ann"),
		"/json":     `{"domain":"d","descriptors":[{"entries":[{"key":"user","value":"secret-ann"}]}]}`,
	} {
		if res, _ := send(t, http.MethodPost, p.url+path, body, "Traceparent", traceparent); res.StatusCode != http.StatusTooManyRequests {
			t.Fatalf("%s: %s", path, res.Status)
		}
	}
}

// The spans in memory reach a collector before the service ends, as part of the callers' trace, with a subject only if
// the operator wants that. Refusals are in the log.
func TestTracesReachACollector(t *testing.T) {
	t.Parallel()
	const trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	file := tempFile(t, "limits.yaml", userLimits)
	for _, flags := range [][]string{nil, {"--show-keys", "--log-refusals"}} {
		c := collect(t)
		p := spawn(t, []string{
			"TRACING_ENABLED=true", "TRACING_EXPORTER_PROTOCOL=http", "TRACING_SERVICE_NAMESPACE=edge", "OTEL_RESOURCE_ATTRIBUTES=team=edge",
			"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=" + c.url + "/v1/traces", "OTEL_BSP_SCHEDULE_DELAY=3600000",
		}, append([]string{"--config", file}, flags...)...)
		callInATrace(t, p, "00-"+trace+"-"+parent+"-01")
		logs := p.stopped(t)
		c.mu.Lock()
		if c.service["service.name"] != "RateLimit" || c.service["service.namespace"] != "edge" || c.service["team"] != "edge" {
			t.Errorf("the resource is %v", c.service)
		}
		outcomes, keys := map[string]int{}, 0
		for _, span := range c.spans {
			if hex.EncodeToString(span.TraceId) != trace || hex.EncodeToString(span.ParentSpanId) != parent || span.Name != "sash.decide" {
				t.Errorf("%v is not below %s of trace %s", span, parent, trace)
			}
			if strings.Contains(span.String(), "secret-ann") {
				keys++
			}
			a := attributes(span.Attributes)
			outcomes[fmt.Sprint(a["sash.outcome"], " ", a["sash.domain"], " ", a["sash.rule"], " ", a["sash.source"], " ", a["sash.limit"])]++
		}
		if outcomes["allowed d other store "] != 1 || outcomes["refused d user store 1/1h"] != 2 || keys != 3*min(len(flags), 1) {
			t.Errorf("%v, of which %d have the subject", outcomes, keys)
		}
		c.mu.Unlock()
		if refused := strings.Contains(logs, "msg=refused") && strings.Contains(logs, "limit=1/1h"); refused != (flags != nil) {
			t.Errorf("logs: %s", logs)
		}
	}
}
