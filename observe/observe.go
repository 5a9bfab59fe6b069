package observe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"example.com/sash"
	"example.com/sash/driver"
)

// All returns an observer that calls several observers in turn. If one panics, All drops the panic and calls
// the others. Nil observers are skipped.
func All(observers ...sash.Observer) sash.Observer {
	return all(slices.DeleteFunc(slices.Clone(observers), func(o sash.Observer) bool { return driver.Nil(o) }))
}

type all []sash.Observer

// Observe implements [sash.Observer].
func (a all) Observe(ctx context.Context, d sash.Decision) {
	for _, o := range a {
		func() {
			defer func() { _ = recover() }()
			o.Observe(ctx, d)
		}()
	}
}

func outcome(d *sash.Decision) string {
	switch {
	case d.Err != nil:
		return "error"
	case !d.Result.Allowed:
		return "refused"
	case d.Result.Source == sash.FromPolicy:
		return "uncounted"
	}
	return "allowed"
}

func errorType(err error) string {
	switch {
	case errors.Is(err, sash.ErrUnavailable):
		return "unavailable"
	case errors.Is(err, context.DeadlineExceeded):
		return "deadline_exceeded"
	case errors.Is(err, context.Canceled):
		return "canceled"
	}
	return "_OTHER"
}

// scope names the instrumentation.
const scope = "example.com/sash/observe"

// Metrics returns an observer that records one histogram, sash.decision.duration, in seconds. It counts decisions and
// measures how long they took, by sash.prefix, sash.outcome, sash.source, sash.limit, sash.waiting and error.type. A
// nil provider is the global one. The error is that of the provider, or says that its value is nil.
//
// There is one series for each combination of prefix, outcome and limit. If limits differ by customer, give them a
// few shared names: see [sash.Limit].
func Metrics(provider metric.MeterProvider) (sash.Observer, error) {
	provider = cmp.Or(provider, otel.GetMeterProvider())
	if driver.Nil(provider) {
		return nil, fmt.Errorf("observe: Metrics got a nil %T", provider)
	}
	duration, err := provider.Meter(scope).Float64Histogram("sash.decision.duration",
		metric.WithUnit("s"), metric.WithDescription("Duration of decisions on rate limits."),
		metric.WithExplicitBucketBoundaries(.00001, .000025, .00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1))
	if err != nil {
		return nil, fmt.Errorf("observe: %w", err)
	}
	return metrics{duration}, nil
}

type metrics struct{ duration metric.Float64Histogram }

// Observe implements [sash.Observer].
func (m metrics) Observe(ctx context.Context, d sash.Decision) {
	m.duration.Record(ctx, d.Duration.Seconds(), metric.WithAttributes(attributes(&d)...))
}

// Spans returns an observer that records a span, sash.decide, for each decision of a caller whose trace is
// sampled, as the child of the caller's span. It lasts from the request to the store until the answer. An error
// sets the span's status but not its text, which is the store's. A nil provider is the global one.
func Spans(provider trace.TracerProvider) sash.Observer {
	provider = cmp.Or(provider, otel.GetTracerProvider())
	if driver.Nil(provider) {
		panic(fmt.Sprintf("observe: Spans got a nil %T", provider))
	}
	return spans{provider.Tracer(scope)}
}

type spans struct{ tracer trace.Tracer }

// Observe implements [sash.Observer].
func (s spans) Observe(ctx context.Context, d sash.Decision) {
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		return
	}
	_, span := s.tracer.Start(ctx, "sash.decide", trace.WithTimestamp(d.Began))
	defer span.End(trace.WithTimestamp(d.Began.Add(d.Duration)))
	span.SetAttributes(attributes(&d)...)
	span.SetAttributes(attribute.Int64("sash.units", d.Cost))
	if d.Err != nil {
		span.SetStatus(codes.Error, "no decision: "+errorType(d.Err))
	} else if !d.Result.Allowed {
		span.SetAttributes(attribute.Float64("sash.retry_after", d.Result.RetryAfter.Seconds()))
	}
}

func attributes(d *sash.Decision) []attribute.KeyValue {
	attrs := make([]attribute.KeyValue, 0, 6)
	attrs = append(attrs, attribute.String("sash.prefix", d.Prefix), attribute.String("sash.outcome", outcome(d)))
	if d.Err != nil {
		attrs = append(attrs, attribute.String("error.type", errorType(d.Err)))
	} else {
		attrs = append(attrs, attribute.String("sash.source", d.Result.Source.String()))
	}
	if by, ok := d.Result.RefusedBy(); ok {
		attrs = append(attrs, attribute.String("sash.limit", strings.ToValidUTF8(by.Limit.Name, "_")))
	}
	if d.Waiting {
		attrs = append(attrs, attribute.Bool("sash.waiting", true))
	}
	return attrs
}

// logEvery is the least time between two lines of a prefix and an outcome. The observer remembers mostLines such pairs.
const (
	logEvery  = time.Second
	mostLines = 1000
)

// Log returns an observer that logs refusals at level info. Calls that the store did not decide are at level
// warn: errors, and calls admitted without being counted. For each prefix and outcome it logs at most one line
// a second, with the number of skipped lines. Prefixes beyond a thousand share one line a second. At level
// debug it logs admissions, refusals of callers who wait, and calls whose context ended, which is no failure of
// the store. A logger with level debug logs every decision.
//
// A nil logger is slog.Default at the time of each call.
func Log(logger *slog.Logger) sash.Observer {
	return &logs{logger: logger, last: make(map[line]*written)}
}

type logs struct {
	logger *slog.Logger
	mu     sync.Mutex
	last   map[line]*written // guarded by mu; mostLines, and one for each outcome of all other prefixes
}

type line struct{ prefix, outcome string }

type written struct {
	at      time.Time
	skipped int64
}

// Observe implements [sash.Observer].
func (l *logs) Observe(ctx context.Context, d sash.Decision) {
	logger := cmp.Or(l.logger, slog.Default())
	what := outcome(&d)
	level := slog.LevelDebug
	switch {
	case what == "refused" && !d.Waiting:
		level = slog.LevelInfo
	case what == "uncounted", errors.Is(d.Err, sash.ErrUnavailable):
		level = slog.LevelWarn
	}
	if !logger.Enabled(ctx, level) {
		return
	}
	skipped := int64(0)
	if !logger.Enabled(ctx, slog.LevelDebug) {
		var due bool
		if skipped, due = l.due(line{d.Prefix, what}, d.Began.Add(d.Duration)); !due {
			return
		}
	}
	attrs := []slog.Attr{slog.String("prefix", d.Prefix), slog.Int64("units", d.Cost), slog.Duration("duration", d.Duration)}
	cause := d.Err
	if cause == nil {
		attrs = append(attrs, slog.String("source", d.Result.Source.String()))
		cause = d.Result.Cause
	}
	if by, ok := d.Result.RefusedBy(); ok {
		attrs = append(attrs, slog.String("limit", by.Limit.Name), slog.Float64("retry_after", d.Result.RetryAfter.Seconds()))
	}
	if d.Waiting {
		attrs = append(attrs, slog.Bool("waiting", true))
	}
	if cause != nil {
		attrs = append(attrs, slog.Any("error", cause))
	}
	if skipped > 0 {
		attrs = append(attrs, slog.Int64("not_logged_before", skipped))
	}
	logger.LogAttrs(ctx, level, what, attrs...)
}

// due reports whether a line may be logged now, and how many were skipped before it.
func (l *logs) due(of line, now time.Time) (skipped int64, due bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last[of] == nil && len(l.last) >= mostLines {
		of.prefix = "" // the prefixes contain something with many values
	}
	last := l.last[of]
	if last == nil {
		last = new(written)
		l.last[of] = last
	}
	if now.Sub(last.at) < logEvery {
		last.skipped++
		return 0, false
	}
	skipped = last.skipped
	*last = written{at: now}
	return skipped, true
}
