package envoy

import (
	"fmt"
	"testing"

	"example.com/sash/service/internal/telemetry"
)

func TestWhereCountersGo(t *testing.T) {
	for text, want := range map[string]string{
		"":                                                 "none",
		"STATSD_HOST=statsd":                               "none",
		"USE_STATSD=true":                                  "tcp localhost:8125 false [] 10s",
		"RUNTIME_ROOT=/data":                               "none",
		"RUNTIME_ROOT=/data STATSD_HOST=statsd":            "tcp statsd:8125 false [] 10s",
		"RUNTIME_ROOT=/data STATSD_PORT=9125":              "tcp localhost:9125 false [] 10s",
		"USE_STATSD=true STATSD_PROTOCOL=udp":              "udp localhost:8125 false [] 10s",
		"USE_STATSD=false STATSD_HOST=statsd":              "none",
		"USE_STATSD=true DISABLE_STATS=true":               "none",
		"USE_DOG_STATSD=true STATSD_HOST=::1":              "udp [::1]:8125 true [] 10s",
		"RUNTIME_ROOT=/ STATSD_HOST=a USE_PROMETHEUS=true": "none",
		"USE_STATSD=true STATS_FLUSH_INTERVAL=1s EXTRA_TAGS=b:2:3,a:1,none:":          "tcp localhost:8125 false [a:1 b:2:3] 1s",
		"RUNTIME_ROOT=/data USE_STATSD=false STATSD_HOST=statsd USE_DOG_STATSD=false": "none",
	} {
		s, err := Read(from(text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got := "none"
		if d := s.Telemetry.Statsd; d != nil {
			got = fmt.Sprint(d.Network, " ", d.Addr, " ", d.Dog, " ", d.Tags, " ", d.Interval)
		}
		if got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

func TestWhoReadsMetricsAndTraces(t *testing.T) {
	s, err := Read(from("USE_PROMETHEUS=true TRACING_ENABLED=true"))
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Telemetry; got.PrometheusAddr != ":9090" || got.PrometheusPath != "/metrics" ||
		*got.Tracing != (telemetry.Tracing{Service: "RateLimit", Rate: 1}) {
		t.Errorf("%+v, %+v", got, got.Tracing)
	}
	s, err = Read(from("USE_PROMETHEUS=true PROMETHEUS_ADDR=:1 PROMETHEUS_PATH=/m TRACING_ENABLED=true TRACING_EXPORTER_PROTOCOL=http TRACING_SERVICE_NAME=a TRACING_SERVICE_NAMESPACE=b TRACING_SERVICE_INSTANCE_ID=c TRACING_SAMPLING_RATE=0"))
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Telemetry; got.PrometheusAddr != ":1" || got.PrometheusPath != "/m" || *got.Tracing != (telemetry.Tracing{Protocol: "http", Service: "a", Namespace: "b", Instance: "c"}) {
		t.Errorf("%+v, %+v", got, got.Tracing)
	}
	if s, _ := Read(from("TRACING_SERVICE_NAME=a PROMETHEUS_ADDR=:1")); s.Telemetry != (telemetry.Exporters{}) {
		t.Errorf("exports that no variable turns on: %+v", s.Telemetry)
	}
}

func TestWrongValuesOfTelemetryAreNamed(t *testing.T) {
	for _, text := range []string{
		"USE_STATSD=true USE_DOG_STATSD=true", "USE_STATSD=true STATSD_PORT=http", "USE_STATSD=true STATSD_PROTOCOL=pigeon",
		"USE_STATSD=true EXTRA_TAGS=a", "USE_STATSD=true STATS_FLUSH_INTERVAL=soon", "USE_PROMETHEUS=true PROMETHEUS_PATH=metrics",
		"TRACING_ENABLED=true TRACING_SAMPLING_RATE=2", "TRACING_ENABLED=true TRACING_EXPORTER_PROTOCOL=zipkin", "USE_STATSD=perhaps",
	} {
		if _, err := Read(from(text)); err == nil {
			t.Errorf("%s: no error", text)
		}
	}
}
