package telemetry

import (
	"fmt"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/grpc/metadata"

	"example.com/sash/memstore"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
)

// The service samples a trace if and only if the caller did, whatever its own rate.
func TestTheCallersSamplingDecisionHolds(t *testing.T) {
	for flags, want := range map[string]int{"00": 0, "01": 1} {
		kept := tracetest.NewInMemoryExporter()
		provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(kept), sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.AlwaysSample())))
		d := decider(t)
		d.Observe((&tracing{tracer: provider.Tracer("")}).observe)
		ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-"+flags))
		parts := []decide.Part{{Entries: []config.Entry{{Key: "user", Value: "ann"}}, Cost: 1}}
		if _, err := d.Decide(ctx, decide.Request{Domain: "d", Parts: parts, Lenient: true}); err != nil {
			t.Fatal(err)
		}
		if got := len(kept.GetSpans()); got != want {
			t.Errorf("flags %s: %d spans", flags, got)
		}
		_ = provider.Shutdown(t.Context())
	}
}

func BenchmarkSpans(b *testing.B) {
	cfg, err := config.Parse("x.yaml", []byte("domain: d\ndescriptors: [{key: user, limits: [1000000/1s]}]\n"))
	if err != nil {
		b.Fatal(err)
	}
	for _, flags := range []string{"", "00", "01"} { // no traces, not kept, kept
		b.Run(fmt.Sprintf("flags=%q", flags), func(b *testing.B) {
			provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(tracetest.NewNoopExporter()))
			defer func() { _ = provider.Shutdown(b.Context()) }()
			d, err := decide.New(cfg, memstore.New(nil))
			if err != nil {
				b.Fatal(err)
			}
			ctx := b.Context()
			if flags != "" {
				d.Observe((&tracing{tracer: provider.Tracer("")}).observe)
				ctx = metadata.NewIncomingContext(ctx, metadata.Pairs("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-"+flags))
			}
			parts := []decide.Part{{Entries: []config.Entry{{Key: "user", Value: "ann"}}, Cost: 1}}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := d.Decide(ctx, decide.Request{Domain: "d", Parts: parts, Lenient: true}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
