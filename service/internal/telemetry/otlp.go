package telemetry

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-logr/logr"
	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"example.com/sash/service/internal/stats"
	"example.com/sash/service/internal/throttle"
)

// maxAttribute bounds the length of a string in a span, unless OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT or
// OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT does.
const maxAttribute = 1024

// enabled reports whether the environment configures a signal, TRACES or METRICS. By default the libraries would send
// to this machine; the service sends nothing.
func enabled(env func(string) string, signal string) (bool, error) {
	name := "OTEL_" + signal + "_EXPORTER"
	switch exporter := env(name); exporter {
	case "":
		return env("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || env("OTEL_EXPORTER_OTLP_"+signal+"_ENDPOINT") != "", nil
	case "otlp", "none":
		return exporter == "otlp", nil
	default:
		return false, fmt.Errorf("%s is %q: use otlp or none", name, exporter)
	}
}

// checkProtocol returns an error if the environment has a signal sent by a protocol that the service does not have.
func checkProtocol(env func(string) string, signal string) error {
	for _, name := range []string{"OTEL_EXPORTER_OTLP_" + signal + "_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		switch p := env(name); p {
		case "":
		case "http/protobuf":
			return nil
		case "grpc":
			return fmt.Errorf("%s is grpc, which sash does not have: use http/protobuf, which collectors receive on port 4318", name)
		default:
			return fmt.Errorf("%s is %q: use http/protobuf", name, p)
		}
	}
	return nil
}

// resourceOf describes this process. OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES take precedence.
func resourceOf(ctx context.Context, envoy *Tracing) (*resource.Resource, error) {
	attrs := []attribute.KeyValue{attribute.String("service.name", "sash")}
	if envoy != nil {
		attrs[0] = attribute.String("service.name", envoy.Service)
		if envoy.Namespace != "" {
			attrs = append(attrs, attribute.String("service.namespace", envoy.Namespace))
		}
		if envoy.Instance != "" {
			attrs = append(attrs, attribute.String("service.instance.id", envoy.Instance))
		}
	}
	return resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(attrs...), resource.WithFromEnv())
}

// newTracing returns the observer that records spans, and a function that exports the last ones.
func newTracing(ctx context.Context, env func(string) string, envoy *Tracing, from *resource.Resource, keys bool) (*tracing, func(context.Context) error, error) {
	err := checkProtocol(env, "TRACES")
	if envoy != nil && envoy.Protocol != "" {
		err = nil
	}
	var exporter sdktrace.SpanExporter
	if err == nil {
		exporter, err = otlptracehttp.New(ctx)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("traces: %w", err)
	}
	limits := sdktrace.NewSpanLimits()
	if limits.AttributeValueLengthLimit < 0 {
		limits.AttributeValueLengthLimit = maxAttribute
	}
	opts := []sdktrace.TracerProviderOption{sdktrace.WithBatcher(exporter), sdktrace.WithResource(from), sdktrace.WithRawSpanLimits(limits)}
	if envoy != nil && env("OTEL_TRACES_SAMPLER") == "" {
		opts = append(opts, sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(envoy.Rate))))
	}
	provider := sdktrace.NewTracerProvider(opts...)
	return &tracing{tracer: provider.Tracer("example.com/sash/service"), keys: keys}, provider.Shutdown, nil
}

// newMetrics exports the metrics that Prometheus would read. It returns a function that exports them a last time.
func newMetrics(ctx context.Context, env func(string) string, registry *stats.Registry, from *resource.Resource) (func(context.Context) error, error) {
	err := checkProtocol(env, "METRICS")
	var exporter metric.Exporter
	if err == nil {
		exporter, err = otlpmetrichttp.New(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	reader := metric.NewPeriodicReader(exporter, metric.WithProducer(bridge.NewMetricProducer(bridge.WithGatherer(registry.Prometheus))))
	return metric.NewMeterProvider(metric.WithReader(reader), metric.WithResource(from)).Shutdown, nil
}

// logTo has the OpenTelemetry libraries log to log: their errors at most once a minute. All are counted.
func logTo(log *slog.Logger, registry *stats.Registry) {
	failures := &throttle.Log{To: log, Every: time.Minute}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		registry.ExportFailed("otlp")
		failures.Log(slog.LevelWarn, "traces or metrics cannot be exported", "error", err)
	}))
	otel.SetLogger(logr.FromSlogHandler(log.Handler()))
}
