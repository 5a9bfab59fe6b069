package telemetry

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"net/http"
	"strings"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc/metadata"

	"example.com/sash/service/internal/cause"
	"example.com/sash/service/internal/decide"
)

// tracing records one span for each request, after its decision.
type tracing struct {
	to          func(*tracepb.Span)
	share       float64 // of the traces that begin here
	parentBased bool    // the caller decides about its own
	keys        bool
}

// A parent is the caller's span (https://www.w3.org/TR/trace-context/#traceparent-header).
type parent struct {
	trace, span []byte
	state       string
	flags       byte // 1: sampled
}

// parseParent reads the headers traceparent and tracestate. It returns nil if there is no valid traceparent.
func parseParent(header, state string) *parent {
	if len(header) < 55 || header[2] != '-' || header[35] != '-' || header[52] != '-' || strings.ToLower(header) != header {
		return nil
	}
	version, err1 := hex.DecodeString(header[:2])
	trace, err2 := hex.DecodeString(header[3:35])
	span, err3 := hex.DecodeString(header[36:52])
	flags, err4 := hex.DecodeString(header[53:55])
	if err1 != nil || err2 != nil || err3 != nil || err4 != nil || version[0] == 0xff || strings.Trim(header[3:35], "0") == "" ||
		strings.Trim(header[36:52], "0") == "" || len(header) > 55 && (version[0] == 0 || header[55] != '-') {
		return nil
	}
	if len(state) > 512 {
		state = ""
	}
	return &parent{trace: trace, span: span, state: strings.ToValidUTF8(state, "_"), flags: flags[0]}
}

type parentKey struct{}

// handler puts the caller's span from the traceparent header into the context.
func (t *tracing) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p := parseParent(r.Header.Get("Traceparent"), r.Header.Get("Tracestate")); p != nil {
			r = r.WithContext(context.WithValue(r.Context(), parentKey{}, p))
		}
		next.ServeHTTP(w, r)
	})
}

// parentOf returns the caller's span: from the handler, or from the metadata of a gRPC call.
func parentOf(ctx context.Context) *parent {
	if p, ok := ctx.Value(parentKey{}).(*parent); ok {
		return p
	}
	first := func(key string) string {
		if values := metadata.ValueFromIncomingContext(ctx, key); len(values) > 0 {
			return values[0]
		}
		return ""
	}
	return parseParent(first("traceparent"), first("tracestate"))
}

func (t *tracing) observe(ctx context.Context, o *decide.Observation) {
	p := parentOf(ctx)
	var id uint64 // the random part of the trace's ID, by which all services of a trace keep the same share of them
	if p == nil {
		id = rand.Uint64()
	} else {
		id = binary.BigEndian.Uint64(p.trace[8:])
	}
	sampled := t.share >= 1 || float64(id>>1) < t.share*(1<<63)
	if p != nil && t.parentBased {
		sampled = p.flags&1 != 0
	}
	if !sampled {
		return
	}
	span := &tracepb.Span{
		Name: "sash.decide", Kind: tracepb.Span_SPAN_KIND_SERVER, Flags: 1,
		SpanId:            binary.BigEndian.AppendUint64(nil, rand.Uint64()|1), // never 0
		StartTimeUnixNano: uint64(o.Began.UnixNano()), EndTimeUnixNano: uint64(o.Began.Add(o.Took).UnixNano()),
		Attributes: t.attributes(o),
	}
	if p != nil {
		span.TraceId, span.ParentSpanId, span.TraceState = p.trace, p.span, p.state
	} else {
		span.TraceId = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, rand.Uint64()|1), id)
	}
	if o.Outcome() == decide.Failed { // without the error's text, which may contain values
		span.Status = &tracepb.Status{Code: tracepb.Status_STATUS_CODE_ERROR, Message: "no decision: " + cause.Of(o.Err)}
	}
	t.to(span)
}

// attributes describe the request and the part that decided it. They contain no values of the request, and
// therefore no domain that is not configured.
func (t *tracing) attributes(o *decide.Observation) []*commonpb.KeyValue {
	attrs := []*commonpb.KeyValue{
		attribute("sash.outcome", o.Outcome().String()),
		attribute("sash.source", o.Origin().String()),
		attribute("sash.descriptors", int64(len(o.Parts))),
	}
	i := o.Decisive()
	if i < 0 {
		return attrs
	}
	add := func(key string, value any) { attrs = append(attrs, attribute(key, value)) }
	a := &o.Answers[i]
	domain, rule := o.Rule(i)
	add("sash.domain", domain)
	add("sash.rule", rule)
	add("sash.units", a.Cost)
	if limit := o.RefusedBy(i); limit != "" {
		add("sash.limit", limit)
		add("sash.retry_after", a.RefusedBy.RetryAfter.Seconds())
	}
	if o.OutcomeOf(i) == decide.Shadowed {
		add("sash.shadow", true)
	}
	if a.Cause != nil {
		add("sash.cause", cause.Of(a.Cause))
	}
	if t.keys || a.Rule != nil && a.Rule.Detailed {
		add("sash.key", a.Key)
	}
	return attrs
}

// attribute returns an attribute. OTLP requires valid UTF-8; a text is cut after a kilobyte.
func attribute(key string, value any) *commonpb.KeyValue {
	const maxText = 1024
	v := &commonpb.AnyValue{}
	switch value := value.(type) {
	case string:
		v.Value = &commonpb.AnyValue_StringValue{StringValue: strings.ToValidUTF8(value[:min(len(value), maxText)], "_")}
	case int64:
		v.Value = &commonpb.AnyValue_IntValue{IntValue: value}
	case float64:
		v.Value = &commonpb.AnyValue_DoubleValue{DoubleValue: value}
	case bool:
		v.Value = &commonpb.AnyValue_BoolValue{BoolValue: value}
	}
	return &commonpb.KeyValue{Key: key, Value: v}
}
