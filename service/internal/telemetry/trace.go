package telemetry

import (
	"context"
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/metadata"

	"example.com/sash/service/internal/decide"
)

// tracing records one span for each request, after its decision.
type tracing struct {
	tracer trace.Tracer
	keys   bool
}

// w3c reads traceparent and tracestate.
var w3c propagation.TraceContext

// handler puts the caller's span from the traceparent header into the context.
func (t *tracing) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("traceparent") != "" {
			r = r.WithContext(w3c.Extract(r.Context(), propagation.HeaderCarrier(r.Header)))
		}
		next.ServeHTTP(w, r)
	})
}

// incoming reads the metadata of a gRPC call.
type incoming struct{ ctx context.Context }

func (c incoming) Get(key string) string {
	if values := metadata.ValueFromIncomingContext(c.ctx, key); len(values) > 0 {
		return values[0]
	}
	return ""
}
func (c incoming) Set(string, string) {}
func (c incoming) Keys() []string     { return nil }

func (t *tracing) observe(ctx context.Context, o *decide.Observation) {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		ctx = w3c.Extract(ctx, incoming{ctx})
	}
	_, span := t.tracer.Start(ctx, "sash.decide", trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(o.Began))
	if span.IsRecording() {
		span.SetAttributes(t.attributes(o)...)
		if o.Outcome() == decide.Failed {
			span.SetStatus(codes.Error, "no decision: "+decide.Cause(o.Err)) // not the error's text, which may contain values
		}
	}
	span.End(trace.WithTimestamp(o.Began.Add(o.Took)))
}

// attributes describe the request and the part that decided it. They contain no values of the request, and
// therefore no domain that is not configured.
func (t *tracing) attributes(o *decide.Observation) []attribute.KeyValue {
	attrs := []attribute.KeyValue{
		attribute.String("sash.outcome", o.Outcome().String()),
		attribute.String("sash.source", o.Origin().String()),
		attribute.Int("sash.descriptors", len(o.Parts)),
	}
	i := o.Decisive()
	if i < 0 {
		return attrs
	}
	a := &o.Answers[i]
	domain, rule := o.Rule(i)
	attrs = append(attrs, attribute.String("sash.domain", valid(domain)), attribute.String("sash.rule", valid(rule)), attribute.Int64("sash.units", a.Cost))
	if limit := o.RefusedBy(i); limit != "" {
		attrs = append(attrs, attribute.String("sash.limit", valid(limit)), attribute.Float64("sash.retry_after", a.RefusedBy.RetryAfter.Seconds()))
	}
	if o.OutcomeOf(i) == decide.Shadowed {
		attrs = append(attrs, attribute.Bool("sash.shadow", true))
	}
	if a.Cause != nil {
		attrs = append(attrs, attribute.String("sash.cause", decide.Cause(a.Cause)))
	}
	if t.keys || a.Rule != nil && a.Rule.Detailed {
		attrs = append(attrs, attribute.String("sash.key", valid(a.Key)))
	}
	return attrs
}

// valid returns text as valid UTF-8, which OTLP requires.
func valid(text string) string { return strings.ToValidUTF8(text, "_") }
