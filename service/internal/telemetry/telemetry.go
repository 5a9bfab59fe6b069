// Package telemetry exports what the service decides: to statsd servers, OpenTelemetry collectors, Prometheus on a port
// of its own, and the log of refusals. It neither delays nor changes a decision, and an export that is not configured
// costs nothing.
package telemetry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"example.com/sash/service/internal/conns"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/httpapi"
	"example.com/sash/service/internal/stats"
)

// flushTime bounds the last exports when the service ends.
const flushTime = 3 * time.Second

// maxScrapers bounds the connections of the port for Prometheus.
const maxScrapers = 32

// Options configure what is exported where. The zero value exports nothing.
type Options struct {
	// Env is the environment, for the OTEL_… variables; the OpenTelemetry libraries read more of them from the
	// process. Nil is empty.
	Env func(string) string
	// Exporters are those of the variables of Envoy's service.
	Exporters Exporters
	// Refusals logs refusals at level info, of each rule one a second.
	Refusals bool
	// Keys includes the keys of subjects, which contain values of requests, in logs and spans. Without it they
	// include only the keys of rules with detailed_metric.
	Keys bool
	// Log receives refusals, and the failures of exports. Nil is slog.Default.
	Log *slog.Logger
}

// Telemetry is the running exports. The caller must call Stop.
type Telemetry struct {
	tracing *tracing // nil for none
	end     context.CancelFunc
	running sync.WaitGroup
	flushes []func(context.Context) error // the last exports
	log     *slog.Logger
}

// Start begins to export the decisions of a decider and the counters of a registry, until Stop. Call it before the
// first decision. After an error nothing runs.
func Start(ctx context.Context, decider *decide.Decider, registry *stats.Registry, opts Options) (*Telemetry, error) {
	if opts.Env == nil {
		opts.Env = func(string) string { return "" }
	}
	opts.Log = cmp.Or(opts.Log, slog.Default())
	ctx, end := context.WithCancel(context.WithoutCancel(ctx)) // until Stop: after the last decision
	t := &Telemetry{end: end, log: opts.Log}
	if err := errors.Join(t.startOTLP(ctx, registry, opts), t.startPrometheus(ctx, registry, opts.Exporters)); err != nil {
		t.Stop()
		return nil, err
	}
	if to := opts.Exporters.Statsd; to != nil {
		p := newPusher(to, registry, opts.Log)
		ended := make(chan struct{})
		t.running.Go(func() { defer close(ended); p.run(ctx) })
		t.flushes = append(t.flushes, func(ctx context.Context) error { <-ended; p.push(ctx); return nil })
	}
	if opts.Refusals {
		decider.Observe(newRefusals(opts.Log, opts.Keys).observe)
	}
	decider.Observe(newCandidates(opts.Log, opts.Keys).observe)
	if t.tracing != nil {
		decider.Observe(t.tracing.observe)
	}
	return t, nil
}

// startOTLP begins to export the traces and metrics that the environment configures.
func (t *Telemetry) startOTLP(ctx context.Context, registry *stats.Registry, opts Options) error {
	if opts.Env("OTEL_SDK_DISABLED") == "true" {
		return nil
	}
	traces, err := enabled(opts.Env, "TRACES")
	metrics, merr := enabled(opts.Env, "METRICS")
	traces = traces || opts.Exporters.Tracing != nil
	if err := errors.Join(err, merr); err != nil || !traces && !metrics {
		return err
	}
	logTo(opts.Log, registry)
	from, err := resourceOf(ctx, opts.Exporters.Tracing)
	if err != nil {
		return fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	if traces {
		tracing, flush, err := newTracing(ctx, opts.Env, opts.Exporters.Tracing, from, opts.Keys)
		if err != nil {
			return err
		}
		t.tracing, t.flushes = tracing, append(t.flushes, flush)
	}
	if metrics {
		flush, err := newMetrics(ctx, opts.Env, registry, from)
		if err != nil {
			return err
		}
		t.flushes = append(t.flushes, flush)
	}
	return nil
}

// startPrometheus serves the metrics on the address that Envoy's variables configure, if any.
func (t *Telemetry) startPrometheus(ctx context.Context, registry *stats.Registry, envoy Exporters) error {
	if envoy.PrometheusAddr == "" {
		return nil
	}
	listener, err := conns.Listen(ctx, envoy.PrometheusAddr)
	if err != nil {
		return fmt.Errorf("cannot listen on %s: %w (choose another with PROMETHEUS_ADDR)", envoy.PrometheusAddr, err)
	}
	t.log.Info("metrics for Prometheus are served on an address of their own", "addr", listener.Addr().String(), "path", envoy.PrometheusPath)
	mux := http.NewServeMux()
	mux.Handle(envoy.PrometheusPath, promhttp.HandlerFor(registry.Prometheus, promhttp.HandlerOpts{Timeout: 10 * time.Second}))
	t.running.Go(func() {
		if err := (httpapi.Server{Connections: conns.Bounds{Max: maxScrapers, Log: t.log}}).Serve(ctx, listener, mux); err != nil {
			t.log.Error("metrics for Prometheus are no longer served", "addr", envoy.PrometheusAddr, "error", err)
		}
	})
	return nil
}

// Handler puts the trace context of a request into its context. Without traces it returns next itself.
func (t *Telemetry) Handler(next http.Handler) http.Handler {
	if t.tracing == nil {
		return next
	}
	return t.tracing.handler(next)
}

// Stop exports what is left, within three seconds, and ends all exports. Call it after the last decision.
func (t *Telemetry) Stop() {
	t.end()
	ctx, cancel := context.WithTimeout(context.Background(), flushTime)
	defer cancel()
	for _, flush := range t.flushes {
		t.running.Go(func() {
			if err := flush(ctx); err != nil {
				t.log.Warn("the last traces or metrics could not be exported", "error", err)
			}
		})
	}
	t.running.Wait()
}
