package observe_test

import (
	"strings"
	"testing"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"example.com/sash"
	"example.com/sash/observe"
)

type (
	meters  struct{ metric.MeterProvider }
	tracers struct{ trace.TracerProvider }
)

func TestConstructorsRefuseNil(t *testing.T) {
	if _, err := observe.Metrics((*meters)(nil)); err == nil || !strings.Contains(err.Error(), "Metrics got a nil") {
		t.Errorf("a nil provider of meters: %v", err)
	}
	observe.All(nil, observerFunc(nil)).Observe(t.Context(), sash.Decision{}) // none
	defer func() {
		if p, ok := recover().(string); !ok || !strings.HasPrefix(p, "observe: Spans got a nil") {
			t.Errorf("a nil provider of tracers: %v", p)
		}
	}()
	observe.Spans((*tracers)(nil))
}
