package telemetry

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-logr/logr"
	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/contrib/exporters/autoexport"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"example.com/sash/service/internal/envoyenv"
	"example.com/sash/service/internal/stats"
	"example.com/sash/service/internal/throttle"
)

// maxAttribute bounds the length of a text in a span, unless OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT or that of spans
// does.
const maxAttribute = 1024

// asked reports whether the environment asks for a signal, TRACES or METRICS. The libraries send to this machine
// when it says nothing; here nothing is sent then.
func asked(env func(string) string, signal string) bool {
	if exporter := env("OTEL_" + signal + "_EXPORTER"); exporter != "" {
		return exporter != "none"
	}
	return env("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || env("OTEL_EXPORTER_OTLP_"+signal+"_ENDPOINT") != ""
}

// resourceOf names this process. OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES come before the rest.
func resourceOf(ctx context.Context, envoy *envoyenv.Tracing) (*resource.Resource, error) {
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

// newTracing returns what makes spans, and what sends the last ones.
func newTracing(ctx context.Context, env func(string) string, envoy *envoyenv.Tracing, from *resource.Resource, keys bool) (*tracing, func(context.Context) error, error) {
	var exporter sdktrace.SpanExporter
	var err error
	switch {
	case envoy != nil && envoy.Protocol == "grpc":
		exporter, err = otlptracegrpc.New(ctx)
	case envoy != nil && envoy.Protocol == "http":
		exporter, err = otlptracehttp.New(ctx)
	default:
		exporter, err = autoexport.NewSpanExporter(ctx)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("traces (OTEL_TRACES_EXPORTER, OTEL_EXPORTER_OTLP_PROTOCOL and what belongs to them): %w", err)
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

// newMetrics sends what Prometheus would read, and returns what sends it for the last time.
func newMetrics(ctx context.Context, counted *stats.Registry, from *resource.Resource) (func(context.Context) error, error) {
	autoexport.WithFallbackMetricProducer(func(context.Context) (metric.Producer, error) {
		return bridge.NewMetricProducer(bridge.WithGatherer(counted.Prometheus)), nil
	})
	reader, err := autoexport.NewMetricReader(ctx)
	if err != nil {
		return nil, fmt.Errorf("metrics (OTEL_METRICS_EXPORTER, OTEL_EXPORTER_OTLP_PROTOCOL and what belongs to them): %w", err)
	}
	return metric.NewMeterProvider(metric.WithReader(reader), metric.WithResource(from)).Shutdown, nil
}

// logTo has the OpenTelemetry libraries log to log: their errors at most once a minute.
func logTo(log *slog.Logger) {
	failures := &throttle.Log{To: log, Every: time.Minute}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		failures.Log(slog.LevelWarn, "traces or metrics are not sent", "error", err)
	}))
	otel.SetLogger(logr.FromSlogHandler(log.Handler()))
}
