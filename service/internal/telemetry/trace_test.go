package telemetry

import (
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/servertest"
	"example.com/sash/service/internal/stats"
)

const (
	traceID = "0af7651916cd43dd8448eb211c80319c"
	spanID  = "b7ad6b7169203331"
)

// The header of a trace context: https://www.w3.org/TR/trace-context/#traceparent-header.
func TestTraceparent(t *testing.T) {
	const right = "00-" + traceID + "-" + spanID + "-01"
	for header, want := range map[string]bool{
		right: true, right[:54] + "0": true, "cc" + right[2:] + "-of-a-later-version": true,
		"": false, right[:52]: false, right + "-more": false, "cc" + right[2:] + "more": false, "ff" + right[2:]: false,
		strings.ToUpper(right): false, strings.ReplaceAll(right, "-", "_"): false, right[:53] + "zz": false, "zz" + right[2:]: false,
		strings.Replace(right, traceID, strings.Repeat("0", 32), 1):   false,
		strings.Replace(right, spanID, strings.Repeat("0", 16), 1):    false,
		strings.Replace(right, traceID, strings.Repeat("z", 32), 1):   false,
		strings.Replace(right, spanID, strings.Repeat("\xff", 16), 1): false,
	} {
		var got *parent
		handler := (&Telemetry{tracing: &tracing{}}).Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = parentOf(r.Context()) }))
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.Header.Set("Traceparent", header)
		r.Header.Set("Tracestate", strings.Repeat("x", 513)) // longer than the specification has it
		handler.ServeHTTP(httptest.NewRecorder(), r)
		if (got != nil) != want || want && (got.state != "" ||
			hex.EncodeToString(got.trace) != traceID || hex.EncodeToString(got.span) != spanID) {
			t.Errorf("%.70q: %v, want %v", header, got, want)
		}
	}
}

// The headers of B3, over HTTP and gRPC: https://github.com/openzipkin/b3-propagation. Those of W3C win.
func TestB3ContinuesATrace(t *testing.T) {
	const short = "0000000000000000" + "8448eb211c80319c"
	many := func(trace, span, more string) string {
		return "x-b3-traceid=" + trace + " x-b3-spanid=" + span + " " + more
	}
	for headers, want := range map[string]string{ // the trace and whether the caller has it sampled, or "" for none
		"b3=" + traceID + "-" + spanID + "-1":                                 traceID + " yes",
		"b3=" + traceID + "-" + spanID + "-d-05e3ac9a4f6e3b90":                traceID + " yes",
		"b3=" + traceID + "-" + spanID + "-0":                                 traceID + " no",
		"b3=" + traceID + "-" + spanID:                                        traceID + " as we like",
		"b3=" + short[16:] + "-" + spanID + "-1":                              short + " yes",
		"b3=0":                                                                "",
		"b3=" + traceID[1:] + "-" + spanID + "a-1":                            "",
		"b3=" + traceID + "-" + spanID[1:] + "-1":                             "",
		"b3=" + strings.Repeat("0", 32) + "-" + spanID + "-1":                 "",
		"b3=" + strings.Repeat("-", 55):                                       "",
		many(strings.ToUpper(traceID), spanID, "x-b3-sampled=1"):              traceID + " yes",
		many(short[16:], spanID, "x-b3-sampled=true x-b3-parentspanid="+"05"): short + " yes",
		many(traceID, spanID, "x-b3-sampled=false"):                           traceID + " no",
		many(traceID, spanID, "x-b3-flags=1"):                                 traceID + " yes",
		many(traceID, spanID, ""):                                             traceID + " as we like",
		many(traceID, "", "x-b3-sampled=1"):                                   "",
		"x-b3-sampled=1":                                                      "",
		many(short, spanID, "traceparent=00-"+traceID+"-"+spanID+"-00"):       traceID + " no",
		"b3=" + short + "-" + spanID + "-1 " + many(traceID, spanID, ""):      short + " yes",
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		md := metadata.MD{}
		for _, header := range strings.Fields(headers) {
			name, value, _ := strings.Cut(header, "=")
			r.Header.Set(name, value)
			md.Set(name, value)
		}
		over := map[string]*parent{"gRPC": parentOf(metadata.NewIncomingContext(t.Context(), md))}
		handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { over["HTTP"] = parentOf(r.Context()) })
		(&Telemetry{tracing: &tracing{}}).Handler(handler).ServeHTTP(httptest.NewRecorder(), r)
		for port, p := range over {
			got := ""
			if p != nil && hex.EncodeToString(p.span) == spanID {
				got = hex.EncodeToString(p.trace) + map[bool]string{true: " yes", false: " no"}[p.flags == 1]
				if p.undecided {
					got = hex.EncodeToString(p.trace) + " as we like"
				}
			}
			if got != want {
				t.Errorf("%s over %s: %q, want %q", headers, port, got, want)
			}
		}
	}
}

func TestSampling(t *testing.T) {
	const n = 2000
	for _, c := range []struct {
		vars, flags string // flags of the caller; empty begins a trace here
		least, most int
	}{
		{"", "00", 0, 0}, {"", "01", n, n}, {"", "", n, n},
		{"OTEL_TRACES_SAMPLER=always_on", "00", n, n}, {"OTEL_TRACES_SAMPLER=always_off", "01", 0, 0},
		{"OTEL_TRACES_SAMPLER=parentbased_always_off", "01", n, n}, {"OTEL_TRACES_SAMPLER=parentbased_always_off", "", 0, 0},
		{"OTEL_TRACES_SAMPLER=parentbased_traceidratio OTEL_TRACES_SAMPLER_ARG=0.25", "00", 0, 0},
		{"OTEL_TRACES_SAMPLER=parentbased_traceidratio OTEL_TRACES_SAMPLER_ARG=0.25", "", n / 5, n * 3 / 10},
		{"OTEL_TRACES_SAMPLER=parentbased_always_off", "b3", 0, 0}, {"", "b3", n, n}, // without X-B3-Sampled it is ours to say
		{"OTEL_TRACES_SAMPLER=traceidratio", "00", n, n},
		{"OTEL_TRACES_SAMPLER=traceidratio OTEL_TRACES_SAMPLER_ARG=0.5", "01", 0, 0}, // by the ID, whose last half begins with 0x84
	} {
		s := &settings{env: variables(c.vars)}
		kept := 0
		tr := &tracing{to: func(*tracepb.Span) { kept++ }}
		if tr.share, tr.parentBased = s.sampler(1); s.err != nil {
			t.Fatal(s.err)
		}
		ctx := t.Context()
		switch {
		case c.flags == "b3":
			ctx = metadata.NewIncomingContext(ctx, metadata.Pairs("b3", traceID+"-"+spanID))
		case c.flags != "":
			ctx = metadata.NewIncomingContext(ctx, metadata.Pairs("traceparent", "00-"+traceID+"-"+spanID+"-"+c.flags))
		}
		for range n {
			tr.observe(ctx, &decide.Observation{})
		}
		if kept < c.least || kept > c.most {
			t.Errorf("%s, flags %q: %d of %d, want %d to %d", c.vars, c.flags, kept, n, c.least, c.most)
		}
	}
}

// A collector that answers with the status that a test sets.
type collector struct {
	*httptest.Server
	env    string // variables that name it and its certificate
	mu     sync.Mutex
	status int            // guarded by mu
	spans  map[string]int // guarded by mu: by the name, those that were taken
	header http.Header    // guarded by mu

	attributes map[string]int // guarded by mu: by the name and the value
}

func startCollector(t *testing.T) *collector {
	c := &collector{status: http.StatusOK, spans: make(map[string]int), attributes: make(map[string]int)}
	c.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		defer c.mu.Unlock()
		var data tracepb.TracesData
		body, err := io.ReadAll(r.Body)
		if err = errors.Join(err, proto.Unmarshal(body, &data)); err != nil {
			t.Error(err)
		}
		if c.header = r.Header; c.status == http.StatusOK {
			for _, span := range data.GetResourceSpans()[0].GetScopeSpans()[0].GetSpans() {
				c.spans[span.GetName()]++
				for _, a := range span.GetAttributes() {
					c.attributes[fmt.Sprint(a.GetKey(), " ", a.GetValue())]++
				}
			}
		}
		w.WriteHeader(c.status)
	}))
	t.Cleanup(c.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	servertest.Check(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate().Raw}), 0o600))
	c.env = "OTEL_EXPORTER_OTLP_ENDPOINT=" + c.URL + " OTEL_EXPORTER_OTLP_CERTIFICATE=" + ca + " OTEL_BSP_SCHEDULE_DELAY=3600000 "
	return c
}

// Stop sends the last spans, each with what was decided.
func TestStopSendsTheLastSpans(t *testing.T) {
	c, d := startCollector(t), decider(t)
	exports := servertest.Must(Start(t.Context(), d, stats.New(nil), Options{
		Env:       variables(c.env + "OTEL_SERVICE_NAME=edge OTEL_RESOURCE_ATTRIBUTES=team=a"),
		Exporters: Exporters{Tracing: &Tracing{Service: "RateLimit", Instance: "a", Rate: 1}},
	}))(t)
	for range 3 {
		ask(t, d, "user", "ann")
	}
	ask(t, d, "soft", "ann")
	ask(t, d, "soft", "ann")
	ask(t, d, "detailed", "ann")
	ask(t, d, "unknown", "ann")
	exports.Stop()
	if c.spans["sash.decide"] != 7 {
		t.Errorf("%v", c.spans)
	}
	for want, n := range map[string]int{
		`sash.outcome string_value:"refused"`: 1, `sash.limit string_value:"2/1h"`: 1, `sash.rule string_value:"user"`: 3, `sash.units int_value:1`: 6,
		`sash.shadow bool_value:true`: 1, `sash.key string_value:"d:detailed:ann"`: 1, `sash.key string_value:"d:user:ann"`: 0,
	} {
		if c.attributes[want] != n {
			t.Errorf("%d of %s, want %d, in %v", c.attributes[want], want, n, c.attributes)
		}
	}
}

// Spans that a collector cannot take now are sent again, once each; those that it will never take are not. Both count as
// failures, and so do spans for which there is no room.
func TestSpansStayUntilTheCollectorTakesThem(t *testing.T) {
	c := startCollector(t)
	registry := stats.New(nil)
	s := &settings{env: variables(c.env + "OTEL_EXPORTER_OTLP_HEADERS=authorization=Basic%20x,tenant=a")}
	e := newSender(s, nil, registry, slog.New(slog.DiscardHandler))
	if s.err != nil {
		t.Fatal(s.err)
	}
	defer e.client.CloseIdleConnections()
	add := func(name string, n int) {
		for range n {
			e.add(&tracepb.Span{Name: name})
		}
	}
	answer := func(status int) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.status = status
	}
	send := func(fails bool) {
		t.Helper()
		if err := e.send(t.Context()); (err != nil) != fails {
			t.Fatalf("%v, want an error: %v", err, fails)
		}
	}
	add("kept", maxBatch+1)
	for _, status := range []int{http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout} {
		answer(status)
		send(true)
	}
	answer(http.StatusOK)
	send(false)
	answer(http.StatusBadRequest)
	add("wrong", 2)
	send(true)
	answer(http.StatusOK)
	add("full", maxSpans+10)
	send(false)
	want := map[string]int{"kept": maxBatch + 1, "full": maxSpans - maxBatch}
	if got := c.spans; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", got, want)
	}
	if c.header.Get("Authorization") != "Basic x" || c.header.Get("Tenant") != "a" || c.header.Get("Content-Type") != "application/x-protobuf" {
		t.Errorf("%v", c.header)
	}
	c.Close()
	add("away", 1)
	if err := e.send(t.Context()); err == nil || strings.Contains(err.Error(), c.URL) {
		t.Errorf("a collector that is away: %v", err)
	}
	if err := testutil.GatherAndCompare(registry.Prometheus, strings.NewReader(`# HELP sash_export_failures_total Exports of traces or counters that failed.
# TYPE sash_export_failures_total counter
sash_export_failures_total{to="otlp"} 1
sash_export_failures_total{to="statsd"} 0
`), "sash_export_failures_total"); err != nil {
		t.Error(err)
	}
}
