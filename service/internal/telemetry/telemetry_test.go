package telemetry

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"example.com/sash/memstore"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/servertest"
	"example.com/sash/service/internal/stats"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const rules = `
domain: d
descriptors:
- {key: user, limits: [2/1h]}
- {key: soft, limits: [1/1h], shadow_mode: true}
- {key: detailed, limits: [1/1h], detailed_metric: true}
- {key: tried, limits: [50/1h], candidate: {limits: [2/1h]}}
- {key: held, limits: [50/1h], candidate: {limits: [2/1h], enforce_percent: 100}}
- {key: never, rate_limit: {unit: day, requests_per_unit: 0}}
`

func decider(t *testing.T) *decide.Decider {
	t.Helper()
	return servertest.Decider(t, memstore.New(nil), rules)
}

// ask requests one unit for one entry.
func ask(t *testing.T, d *decide.Decider, key, value string) {
	t.Helper()
	parts := []decide.Part{{Entries: []config.Entry{{Key: key, Value: value}}, Cost: 1}}
	if _, err := d.Decide(t.Context(), decide.Request{Domain: "d", Parts: parts, Lenient: true}); err != nil {
		t.Fatal(err)
	}
}

// variables are an environment: name=value, separated by blanks.
func variables(all string) func(string) string {
	m := make(map[string]string)
	for field := range strings.FieldsSeq(all) {
		name, value, _ := strings.Cut(field, "=")
		m[name] = value
	}
	return func(name string) string { return m[name] }
}

func TestNothingIsExportedByDefault(t *testing.T) {
	for _, env := range []string{
		"",
		"OTEL_SERVICE_NAME=x OTEL_TRACES_SAMPLER=always_on",
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1 OTEL_SDK_DISABLED=true",
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1 OTEL_TRACES_EXPORTER=none OTEL_METRICS_EXPORTER=none",
	} {
		exports, err := Start(t.Context(), decider(t), stats.New(nil), Options{Env: variables(env), Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if exports.tracing != nil {
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
	const on = "OTEL_TRACES_EXPORTER=otlp "
	for vars, want := range map[string]string{
		on + "OTEL_EXPORTER_OTLP_PROTOCOL=grpc":                                                    "OTEL_EXPORTER_OTLP_PROTOCOL is \"grpc\": use http/protobuf",
		on + "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=pigeon": "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
		on + "OTEL_EXPORTER_OTLP_ENDPOINT=collector:4317":                                          "such as http://collector:4318",
		on + "OTEL_EXPORTER_OTLP_HEADERS=secret":                                                   "key=value",
		on + "OTEL_EXPORTER_OTLP_TIMEOUT=10s":                                                      "use milliseconds",
		on + "OTEL_BSP_SCHEDULE_DELAY=0":                                                           "use milliseconds",
		on + "OTEL_EXPORTER_OTLP_CERTIFICATE=/nowhere":                                             "no such file",
		on + "OTEL_EXPORTER_OTLP_CERTIFICATE=telemetry.go":                                         "no certificate",
		on + "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE=/nowhere":                                      "CLIENT_KEY",
		on + "OTEL_RESOURCE_ATTRIBUTES=a=%zz":                                                      "percent-encoded",
		on + "OTEL_TRACES_SAMPLER=sometimes":                                                       "use always_on",
		on + "OTEL_TRACES_SAMPLER=traceidratio OTEL_TRACES_SAMPLER_ARG=2":                          "a number from 0 to 1",
		"OTEL_TRACES_EXPORTER=pigeon":                                                              "use otlp or none",
		"OTEL_METRICS_EXPORTER=otlp":                                                               "prometheus receiver",
		"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=http://c:4318":                                        "prometheus receiver",
	} {
		_, err := Start(t.Context(), decider(t), stats.New(nil), Options{Env: variables(vars), Log: slog.New(slog.DiscardHandler)})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %q", vars, err, want)
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
