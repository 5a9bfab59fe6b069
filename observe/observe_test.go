package observe_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/memstore"
	"example.com/sash/observe"
	"example.com/sash/storetest"
)

// An api is a limiter of two calls a minute, on a store that fails on demand.
type api struct {
	*sash.Limiter
	store *storetest.Faulty
}

func newAPI(t *testing.T, over func(driver.Store) driver.Store, o sash.Observer) api {
	t.Helper()
	faulty := storetest.NewFaulty(memstore.New(nil))
	l, err := sash.New(over(faulty), &sash.Options{Prefix: "api", Observer: o}, sash.PerMinute(2))
	if err != nil {
		t.Fatal(err)
	}
	return api{l, faulty}
}

func direct(s driver.Store) driver.Store { return s }

// callAll has one call of each outcome: two admitted, one refused, one that the store fails, and one whose caller left.
func (a api) callAll(ctx context.Context) {
	for range 3 {
		_, _ = a.Allow(ctx, "ann@example.com")
	}
	a.store.Fail(errors.New("down"))
	_, _ = a.Allow(ctx, "ann@example.com")
	a.store.Hang(nil)
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, _ = a.Allow(ctx, "ann@example.com")
	a.store.Fail(nil)
}

// histogram returns the points of the one metric that a reader collects, by their attributes.
func histogram(t *testing.T, reader sdkmetric.Reader) (metricdata.Metrics, map[string]metricdata.HistogramDataPoint[float64]) {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	if len(all.ScopeMetrics) != 1 || len(all.ScopeMetrics[0].Metrics) != 1 {
		t.Fatalf("collected %+v, want one metric", all.ScopeMetrics)
	}
	m := all.ScopeMetrics[0].Metrics[0]
	points := make(map[string]metricdata.HistogramDataPoint[float64])
	for _, p := range m.Data.(metricdata.Histogram[float64]).DataPoints {
		points[p.Attributes.Encoded(attribute.DefaultEncoder())] = p
	}
	return m, points
}

func newMetrics(t *testing.T) (sash.Observer, sdkmetric.Reader) {
	t.Helper()
	reader := sdkmetric.NewManualReader()
	o, err := observe.Metrics(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)))
	if err != nil {
		t.Fatal(err)
	}
	return o, reader
}

func TestMetricsCountDecisionsByOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, reader := newMetrics(t)
		newAPI(t, direct, o).callAll(t.Context())
		m, points := histogram(t, reader)
		if m.Name != "sash.decision.duration" || m.Unit != "s" {
			t.Errorf("the metric is %s in %s", m.Name, m.Unit)
		}
		want := map[string]uint64{
			"sash.outcome=allowed,sash.prefix=api,sash.source=store":                 2,
			"sash.limit=2/1m,sash.outcome=refused,sash.prefix=api,sash.source=store": 1,
			"error.type=unavailable,sash.outcome=error,sash.prefix=api":              1,
			"error.type=deadline_exceeded,sash.outcome=error,sash.prefix=api":        1,
		}
		for attrs, count := range want {
			if got := points[attrs].Count; got != count {
				t.Errorf("%s counts %d, want %d", attrs, got, count)
			}
		}
		if len(points) != len(want) {
			t.Errorf("%d series, want %d: %v", len(points), len(want), points)
		}
		if got := points["error.type=deadline_exceeded,sash.outcome=error,sash.prefix=api"].Sum; got != 1 {
			t.Errorf("a call that waited for a second took %v s", got)
		}
	})
}

// What a failover lets through is not counted as allowed.
func TestMetricsTellWhatIsNotCounted(t *testing.T) {
	o, reader := newMetrics(t)
	a := newAPI(t, func(s driver.Store) driver.Store {
		store, err := failover.New(s, &failover.Options{Modes: failover.Modes{Rules: []failover.Rule{{Mode: failover.Open}}}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close(context.Background()) })
		return store
	}, o)
	a.store.Fail(errors.New("down"))
	if _, err := a.Allow(t.Context(), "ann@example.com"); err != nil {
		t.Fatal(err)
	}
	_, points := histogram(t, reader)
	if got := points["sash.outcome=uncounted,sash.prefix=api,sash.source=policy"].Count; got != 1 {
		t.Errorf("points: %v", points)
	}
}

func TestSpansAreChildrenOfTheCallersSpan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exported := tracetest.NewInMemoryExporter()
		provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exported))
		a := newAPI(t, direct, observe.Spans(provider))

		if _, err := a.Peek(t.Context(), "nobody"); err != nil {
			t.Fatal(err)
		}
		if _, err := a.AllowAll(t.Context(), sash.Subject{Key: "no span", Cost: 1}); err != nil || len(exported.GetSpans()) != 0 {
			t.Errorf("%d spans without a caller's, %v", len(exported.GetSpans()), err)
		}
		ctx, parent := provider.Tracer("test").Start(t.Context(), "request")
		a.callAll(ctx)
		var got []map[attribute.Key]any
		for _, s := range exported.GetSpans() {
			if s.Name != "sash.decide" || s.Parent.SpanID() != parent.SpanContext().SpanID() {
				t.Errorf("span %s is a child of %v", s.Name, s.Parent.SpanID())
			}
			attrs := map[attribute.Key]any{"took": s.EndTime.Sub(s.StartTime), "status": s.Status}
			for _, kv := range s.Attributes {
				attrs[kv.Key] = kv.Value.AsInterface()
			}
			got = append(got, attrs)
		}
		none := sdktrace.Status{}
		admitted := map[attribute.Key]any{"took": time.Duration(0), "status": none, "sash.prefix": "api", "sash.outcome": "allowed",
			"sash.source": "store", "sash.units": int64(1)}
		want := []map[attribute.Key]any{
			admitted, admitted,
			{"took": time.Duration(0), "status": none, "sash.prefix": "api", "sash.outcome": "refused", "sash.source": "store",
				"sash.units": int64(1), "sash.limit": "2/1m", "sash.retry_after": 60.0},
			{"took": time.Duration(0), "status": sdktrace.Status{Code: codes.Error, Description: "no decision: unavailable"},
				"sash.prefix": "api", "sash.outcome": "error", "sash.units": int64(1), "error.type": "unavailable"},
			{"took": time.Second, "status": sdktrace.Status{Code: codes.Error, Description: "no decision: deadline_exceeded"},
				"sash.prefix": "api", "sash.outcome": "error", "sash.units": int64(1), "error.type": "deadline_exceeded"},
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("spans:\n%v\nwant\n%v", got, want)
		}
	})
}

// logged returns the lines of a log, without what is the same in all.
func logged(t *testing.T, log *bytes.Buffer) (lines []string) {
	t.Helper()
	for text := range strings.Lines(log.String()) {
		var line map[string]any
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatal(err)
		}
		if line["prefix"] != "api" || strings.Contains(text, "ann@") {
			t.Errorf("the line is %s", text)
		}
		s := line["level"].(string) + " " + line["msg"].(string)
		for _, key := range []string{"limit", "retry_after", "error", "not_logged_before"} {
			if v, ok := line[key]; ok {
				text, _ := json.Marshal(v)
				s += " " + key + "=" + string(text)
			}
		}
		lines = append(lines, s)
	}
	log.Reset()
	return lines
}

func TestTheLogHasRefusalsAndErrors(t *testing.T) {
	for level, want := range map[slog.Level][]string{
		slog.LevelInfo: {
			`INFO refused limit="2/1m" retry_after=60`,
			`WARN error error="sash: the store is unavailable: down"`,
		},
		slog.LevelWarn: {
			`WARN error error="sash: the store is unavailable: down"`,
		},
		slog.LevelDebug: {
			"DEBUG allowed", "DEBUG allowed",
			`INFO refused limit="2/1m" retry_after=60`,
			`WARN error error="sash: the store is unavailable: down"`,
			`DEBUG error error="sash: context deadline exceeded"`,
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			o := observe.Log(slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: level})))
			newAPI(t, direct, o).callAll(t.Context())
			if got := logged(t, &log); !reflect.DeepEqual(got, want) {
				t.Errorf("at level %v:\n%q\nwant\n%q", level, got, want)
			}
		})
	}
}

// An attack does not fill the disk: of each outcome a line a second, which says how many are missing.
func TestTheLogHasOneLineOfAnOutcomeEachSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		a := newAPI(t, direct, observe.Log(slog.New(slog.NewJSONHandler(&log, nil))))
		for range 102 { // two are admitted
			_, _ = a.Allow(t.Context(), "ann@example.com")
		}
		time.Sleep(time.Second)
		_, _ = a.Allow(t.Context(), "ann@example.com")
		a.store.Fail(errors.New("down"))
		_, _ = a.Allow(t.Context(), "ann@example.com")
		want := []string{
			`INFO refused limit="2/1m" retry_after=60`,
			`INFO refused limit="2/1m" retry_after=59 not_logged_before=99`,
			`WARN error error="sash: the store is unavailable: down"`,
		}
		if got := logged(t, &log); !reflect.DeepEqual(got, want) {
			t.Errorf("the log is\n%q\nwant\n%q", got, want)
		}
	})
}

type observerFunc func(context.Context, sash.Decision)

func (f observerFunc) Observe(ctx context.Context, d sash.Decision) { f(ctx, d) }
