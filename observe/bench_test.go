package observe_test

import (
	"context"
	"io"
	"log/slog"
	"testing"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"example.com/sash"
	"example.com/sash/memstore"
	"example.com/sash/observe"
)

// What an observer adds to a decision that is refused in memory.
func BenchmarkObserver(b *testing.B) {
	metrics, err := observe.Metrics(sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())))
	if err != nil {
		b.Fatal(err)
	}
	spans := sdktrace.NewTracerProvider(sdktrace.WithBatcher(tracetest.NewNoopExporter()))
	ctx, _ := spans.Tracer("test").Start(context.Background(), "request")
	for _, c := range []struct {
		name     string
		observer sash.Observer
	}{
		{"none", nil},
		{"log", observe.Log(slog.New(slog.NewJSONHandler(io.Discard, nil)))},
		{"metrics", metrics},
		{"spans", observe.Spans(spans)},
	} {
		b.Run(c.name, func(b *testing.B) {
			l, err := sash.New(memstore.New(nil), &sash.Options{Observer: c.observer}, sash.PerDay(1))
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				_, _ = l.Allow(ctx, "k")
			}
		})
	}
}
