package telemetry

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"example.com/sash/service/internal/access"
	"example.com/sash/service/internal/cause"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/stats"
	"example.com/sash/service/internal/throttle"
)

// tracing records one span for each request, after its decision.
type tracing struct {
	to          func(*tracepb.Span)
	share       float64 // of the traces that begin here
	parentBased bool    // the caller decides on its own traces
	keys        bool
}

// A parent is the caller's span (https://www.w3.org/TR/trace-context/#traceparent-header).
type parent struct {
	trace, span []byte
	state       string
	flags       byte // 1: sampled
	undecided   bool // the caller lets us decide whether it is sampled
}

// readParent reads the caller's span from the W3C headers, or else from the B3 headers. Header returns a header by its name.
func readParent(header func(name string) string) *parent {
	if p := parseParent(header("traceparent"), header("tracestate")); p != nil {
		return p
	}
	trace, span, sampled := header("x-b3-traceid"), header("x-b3-spanid"), header("x-b3-sampled")
	if one := header("b3"); one != "" { // https://github.com/openzipkin/b3-propagation
		fields := append(strings.SplitN(one, "-", 4), "", "")
		trace, span, sampled = fields[0], fields[1], fields[2]
	} else if header("x-b3-flags") == "1" {
		sampled = "d" // debug, which is sampled
	}
	if len(trace) == 16 {
		trace = "0000000000000000" + trace
	}
	p := parseParent(strings.ToLower("00-"+trace+"-"+span+"-00"), "")
	if p == nil {
		return nil
	}
	switch sampled {
	case "1", "d", "true":
		p.flags = 1
	case "0", "false":
	default:
		p.undecided = true
	}
	return p
}

// parseParent reads the headers traceparent and tracestate. It returns nil if there is no valid traceparent.
func parseParent(header, state string) *parent {
	if len(header) < 55 || header[2] != '-' || header[35] != '-' || header[52] != '-' || strings.ToLower(header) != header {
		return nil
	}
	fields, err := hex.DecodeString(header[:2] + header[3:35] + header[36:52] + header[53:55])
	if err != nil || fields[0] == 0xff || strings.Trim(header[3:35], "0") == "" || strings.Trim(header[36:52], "0") == "" ||
		len(header) > 55 && (fields[0] == 0 || header[55] != '-') {
		return nil
	}
	if len(state) > 512 {
		state = ""
	}
	return &parent{trace: fields[1:17], span: fields[17:25], state: strings.ToValidUTF8(state, "_"), flags: fields[25]}
}

type parentKey struct{}

// parentOf returns the caller's span: from [Telemetry.Handler], or from the metadata of a gRPC call.
func parentOf(ctx context.Context) *parent {
	if p, ok := ctx.Value(parentKey{}).(*parent); ok {
		return p
	}
	return readParent(func(name string) string {
		if values := metadata.ValueFromIncomingContext(ctx, name); len(values) > 0 {
			return values[0]
		}
		return ""
	})
}

func (t *tracing) observe(ctx context.Context, o *decide.Observation) {
	p := parentOf(ctx)
	id := rand.Uint64() // the random part of the trace's ID, from which all services of a trace derive the same share
	if p != nil {
		id = binary.BigEndian.Uint64(p.trace[8:])
	}
	sampled := t.share >= 1 || float64(id>>1) < t.share*(1<<63)
	if p != nil && t.parentBased && !p.undecided {
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
	if o.Outcome() == decide.Failed { // leave out the error's text, which may contain values
		span.Status = &tracepb.Status{Code: tracepb.Status_STATUS_CODE_ERROR, Message: "no decision: " + cause.Of(o.Err)}
	}
	t.to(span)
}

func (t *tracing) attributes(o *decide.Observation) []*commonpb.KeyValue {
	attrs := []*commonpb.KeyValue{
		attribute("sash.outcome", o.Outcome().String()),
		attribute("sash.source", o.Origin().String()),
		attribute("sash.descriptors", int64(len(o.Parts))),
	}
	if i := o.Decisive(); i >= 0 {
		for _, d := range details(o, i, t.keys) {
			attrs = append(attrs, attribute("sash."+d.Key, d.Value.Any()))
		}
	}
	return attrs
}

// attribute returns an attribute. It makes text valid UTF-8, which OTLP requires, and cuts it after a kilobyte.
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

// Bounds of the spans that wait for a collector, from the OpenTelemetry specification.
const (
	maxSpans = 2048 // with those of a batch; further spans are dropped
	maxBatch = 512  // spans in one request
)

// settings reads the OTEL_… variables of one process. It keeps the first error in err.
type settings struct {
	env func(string) string
	err error
}

func (s *settings) fail(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf(format, args...)
	}
}

// traces reports whether the variables ask for traces. By default, the specification sends to this machine, but the
// service sends nothing.
func (s *settings) traces() bool {
	for _, name := range []string{"OTEL_METRICS_EXPORTER", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"} {
		if value := s.env(name); value != "" && value != "none" {
			s.fail("%s is set, but sash does not send metrics: have the collector's prometheus receiver read /metrics of the admin port", name)
		}
	}
	switch exporter := s.env("OTEL_TRACES_EXPORTER"); exporter {
	case "":
		return s.env("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || s.env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
	case "otlp", "none":
		return exporter == "otlp"
	default:
		s.fail("OTEL_TRACES_EXPORTER is %q: use otlp or none", exporter)
		return false
	}
}

// otlp returns OTEL_EXPORTER_OTLP_TRACES_<name>, or else OTEL_EXPORTER_OTLP_<name>, and the name of that variable.
func (s *settings) otlp(name string) (value, from string) {
	for _, from = range []string{"OTEL_EXPORTER_OTLP_TRACES_" + name, "OTEL_EXPORTER_OTLP_" + name} {
		if value = s.env(from); value != "" {
			break
		}
	}
	return value, from
}

// endpoint returns where spans go. It adds the path of the signal to the general variable.
func (s *settings) endpoint() string {
	value, from := s.otlp("ENDPOINT")
	if value == "" {
		return "http://localhost:4318/v1/traces"
	}
	u, err := url.Parse(value)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		s.fail("%s must be a URL such as http://collector:4318", from) // without the value, which may have a password
		return ""
	}
	if from == "OTEL_EXPORTER_OTLP_ENDPOINT" {
		u = u.JoinPath("v1/traces")
	}
	return u.String()
}

func (s *settings) pairs(text, from string, pair func(key, value string)) {
	for part := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		key, value, ok := strings.Cut(part, "=")
		key = strings.TrimSpace(key)
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if !ok || key == "" || err != nil {
			s.fail("%s must be key=value,key=value with percent-encoded values", from)
			return
		}
		pair(key, value)
	}
}

func (s *settings) millis(value, from string, otherwise time.Duration) time.Duration {
	if value == "" {
		return otherwise
	}
	d, err := time.ParseDuration(value + "ms")
	if err != nil || d <= 0 {
		s.fail("%s=%s: use milliseconds, above 0", from, value)
	}
	return d
}

// sampler returns the share to keep of the traces that begin here, and whether a caller's own decision takes precedence.
func (s *settings) sampler(otherwise float64) (share float64, parentBased bool) {
	name := s.env("OTEL_TRACES_SAMPLER")
	if name == "" {
		return otherwise, true
	}
	kind, parentBased := strings.CutPrefix(name, "parentbased_")
	share, known := map[string]float64{"always_on": 1, "always_off": 0, "traceidratio": 1}[kind]
	if !known {
		s.fail("OTEL_TRACES_SAMPLER=%s: use always_on, always_off or traceidratio, or one of them after parentbased_", name)
	}
	if text := s.env("OTEL_TRACES_SAMPLER_ARG"); kind == "traceidratio" && text != "" {
		var err error
		if share, err = strconv.ParseFloat(text, 64); err != nil || !(share >= 0 && share <= 1) {
			s.fail("OTEL_TRACES_SAMPLER_ARG=%s: use a number from 0 to 1", text)
		}
	}
	return share, parentBased
}

// resource describes this process. OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES take precedence.
func (s *settings) resource(envoy *Tracing) *resourcepb.Resource {
	all := map[string]string{"service.name": "sash"}
	if envoy != nil {
		all = map[string]string{"service.name": envoy.Service, "service.namespace": envoy.Namespace, "service.instance.id": envoy.Instance}
	}
	s.pairs(s.env("OTEL_RESOURCE_ATTRIBUTES"), "OTEL_RESOURCE_ATTRIBUTES", func(key, value string) { all[key] = value })
	if name := s.env("OTEL_SERVICE_NAME"); name != "" {
		all["service.name"] = name
	}
	var r resourcepb.Resource
	for key, value := range all {
		if value != "" {
			r.Attributes = append(r.Attributes, attribute(key, value))
		}
	}
	return &r
}

func (s *settings) client() *http.Client {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	ca, _ := s.otlp("CERTIFICATE")
	cert, _ := s.otlp("CLIENT_CERTIFICATE")
	key, _ := s.otlp("CLIENT_KEY")
	if err := access.Certify(config, ca, cert, key); err != nil {
		s.fail("OTEL_EXPORTER_OTLP_CERTIFICATE, CLIENT_CERTIFICATE and CLIENT_KEY: %w", err)
	}
	timeout, from := s.otlp("TIMEOUT")
	return &http.Client{
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: config, ForceAttemptHTTP2: true, MaxConnsPerHost: 1},
		Timeout:   s.millis(timeout, from, 10*time.Second),
	}
}

// A sender keeps spans and sends them to a collector in OTLP over HTTP (https://opentelemetry.io/docs/specs/otlp/#otlphttp).
// It keeps spans that the collector cannot take now, and sends them later.
type sender struct {
	url      string
	header   http.Header
	client   *http.Client
	resource *resourcepb.Resource
	delay    time.Duration // between two rounds
	registry *stats.Registry
	failures throttle.Log

	spans   chan *tracepb.Span // spans that wait
	full    chan struct{}      // has a value when spans are enough for a batch, unless the last round failed
	failed  atomic.Bool
	dropped atomic.Int64    // spans that had no room since the last round
	batch   []*tracepb.Span // the next spans to send; used by send alone
}

func newSender(s *settings, envoy *Tracing, registry *stats.Registry, log *slog.Logger) *sender {
	if protocol, from := s.otlp("PROTOCOL"); (envoy == nil || envoy.Protocol == "") && protocol != "" && protocol != "http/protobuf" {
		s.fail("%s is %q: use http/protobuf, which collectors receive on port 4318", from, protocol)
	}
	e := &sender{
		url: s.endpoint(), header: http.Header{}, client: s.client(), resource: s.resource(envoy),
		spans: make(chan *tracepb.Span, maxSpans-maxBatch), full: make(chan struct{}, 1),
		delay:    s.millis(s.env("OTEL_BSP_SCHEDULE_DELAY"), "OTEL_BSP_SCHEDULE_DELAY", 5*time.Second),
		registry: registry, failures: throttle.Log{To: log, Every: time.Minute},
	}
	headers, from := s.otlp("HEADERS")
	s.pairs(headers, from, e.header.Set)
	e.header.Set("Content-Type", "application/x-protobuf")
	return e
}

// add keeps a span until it is sent. It never waits.
func (e *sender) add(span *tracepb.Span) {
	select {
	case e.spans <- span:
	default:
		e.dropped.Add(1)
	}
	if len(e.spans) >= maxBatch && !e.failed.Load() {
		select {
		case e.full <- struct{}{}:
		default:
		}
	}
}

func (e *sender) push(ctx context.Context) {
	err := e.send(ctx)
	if e.failed.Store(err != nil); err != nil {
		e.registry.ExportFailed("otlp")
		e.failures.Log(slog.LevelWarn, "traces cannot be exported", "error", err)
	}
}

// send sends the waiting spans, one batch in each request, until a request fails.
func (e *sender) send(ctx context.Context) error {
	if dropped := e.dropped.Swap(0); dropped > 0 {
		e.registry.ExportFailed("otlp")
		e.failures.Log(slog.LevelWarn, "spans were dropped: more came than the collector took", "spans", dropped)
	}
	for {
		for len(e.spans) > 0 && len(e.batch) < maxBatch {
			e.batch = append(e.batch, <-e.spans)
		}
		if len(e.batch) == 0 {
			return nil
		}
		keep, err := e.post(ctx, e.batch)
		if !keep {
			e.batch = nil
		}
		if err != nil {
			return err
		}
	}
}

// post sends one request. After an error, keep says that the same spans may be sent again.
func (e *sender) post(ctx context.Context, spans []*tracepb.Span) (keep bool, err error) {
	scope := &tracepb.ScopeSpans{Scope: &commonpb.InstrumentationScope{Name: "example.com/sash/service"}, Spans: spans}
	body, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: []*tracepb.ResourceSpans{{Resource: e.resource, ScopeSpans: []*tracepb.ScopeSpans{scope}}}})
	if err != nil {
		return false, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	req.Header = e.header.Clone()
	res, err := e.client.Do(req)
	if err != nil {
		if u := (*url.Error)(nil); errors.As(err, &u) {
			err = u.Err // drop the URL, which may have a password
		}
		return true, fmt.Errorf("the collector does not answer: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 64<<10)) // so that the connection can be reused
	if res.StatusCode < 300 {
		return false, nil
	}
	keep = res.StatusCode == http.StatusTooManyRequests || res.StatusCode >= 502 && res.StatusCode <= 504
	return keep, fmt.Errorf("the collector answers %s", res.Status)
}
