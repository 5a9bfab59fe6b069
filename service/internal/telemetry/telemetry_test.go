package telemetry

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.opentelemetry.io/otel"

	"example.com/sash/service/internal/stats"
)

func environment(all map[string]string) func(string) string {
	return func(name string) string { return all[name] }
}

func TestNothingIsExportedByDefault(t *testing.T) {
	for _, env := range []map[string]string{
		nil,
		{"OTEL_SERVICE_NAME": "x", "OTEL_TRACES_SAMPLER": "always_on"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none"},
	} {
		exports, err := Start(t.Context(), decider(t), stats.New(nil), Options{Env: environment(env), Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if exports.tracing != nil || len(exports.flushes) > 0 {
			t.Errorf("%v: something is exported", env)
		}
		next := http.NewServeMux()
		if exports.Handler(next) != http.Handler(next) {
			t.Errorf("%v: the handler reads traces", env)
		}
		exports.Stop()
	}
}

func TestStartReturnsWrongSettings(t *testing.T) {
	for _, signal := range []string{"TRACES", "METRICS"} {
		for _, env := range []map[string]string{
			{"OTEL_" + signal + "_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "pigeon"},
			{"OTEL_" + signal + "_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf", "OTEL_EXPORTER_OTLP_" + signal + "_PROTOCOL": "pigeon"},
			{"OTEL_" + signal + "_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
			{"OTEL_" + signal + "_EXPORTER": "pigeon"},
		} {
			_, err := Start(t.Context(), decider(t), stats.New(nil), Options{Env: environment(env), Log: slog.New(slog.DiscardHandler)})
			if err == nil || !strings.Contains(err.Error(), "use otlp or none") && !strings.Contains(err.Error(), "use http/protobuf") {
				t.Errorf("%v: %v", env, err)
			}
		}
	}
	if _, err := Start(t.Context(), decider(t), stats.New(nil), Options{Exporters: Exporters{PrometheusAddr: "nowhere:x"}}); err == nil ||
		!strings.Contains(err.Error(), "PROMETHEUS_ADDR") {
		t.Errorf("%v", err)
	}
}

func TestPrometheusHasAnAddressOfItsOwn(t *testing.T) {
	var log bytes.Buffer
	registry := stats.New(nil)
	d := decider(t)
	d.Observe(registry.Observe)
	exports, err := Start(t.Context(), d, registry, Options{
		Exporters: Exporters{PrometheusAddr: "127.0.0.1:0", PrometheusPath: "/m"}, Log: slog.New(slog.NewTextHandler(&log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer exports.Stop()
	ask(t, d, "user", "ann")
	addr := regexp.MustCompile(`addr=(\S+)`).FindStringSubmatch(log.String())[1]
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/m", nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, _ := io.ReadAll(res.Body)
	if want := `sash_decisions_total{domain="d",outcome="allowed",rule="user",source="store"} 1`; !strings.Contains(string(text), want) {
		t.Errorf("%s is not in %s", want, text)
	}
}

// Errors of the OpenTelemetry libraries are counted, also those that are not logged.
func TestExportsThatFailAreCounted(t *testing.T) {
	var log bytes.Buffer
	registry := stats.New(nil)
	logTo(slog.New(slog.NewTextHandler(&log, nil)), registry)
	for range 3 {
		otel.Handle(errors.New("no collector"))
	}
	if err := testutil.GatherAndCompare(registry.Prometheus, strings.NewReader(`# HELP sash_export_failures_total Exports of metrics or traces that failed.
# TYPE sash_export_failures_total counter
sash_export_failures_total{to="otlp"} 3
sash_export_failures_total{to="statsd"} 0
`), "sash_export_failures_total"); err != nil {
		t.Error(err)
	}
	if n := strings.Count(log.String(), "no collector"); n != 1 {
		t.Errorf("%d failures are logged: %s", n, &log)
	}
}

// A malformed traceparent begins a new trace.
func TestMalformedTraceparent(t *testing.T) {
	handler := (&tracing{}).handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	for _, header := range []string{"", "00-zz-yy-01", strings.Repeat("0", 10_000)} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.Header.Set("Traceparent", header)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != http.StatusNoContent {
			t.Errorf("%.20s: %d", header, w.Code)
		}
	}
}
