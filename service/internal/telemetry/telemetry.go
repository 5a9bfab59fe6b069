// Package telemetry tells others what the service decides: statsd servers, OpenTelemetry collectors, Prometheus
// on a port of its own, and the log. Nothing here delays or changes a decision, and what is not asked for costs
// nothing.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/envoyenv"
	"example.com/sash/service/internal/httpapi"
	"example.com/sash/service/internal/stats"
	"example.com/sash/service/internal/throttle"
)

// flushTime bounds sending the rest when the service ends.
const flushTime = 3 * time.Second

// Options say what to tell whom. The zero value tells nobody.
type Options struct {
	// Env is the environment, of which the OTEL_… variables are read; the libraries read more of them from the
	// process. Nil is an empty one.
	Env func(string) string
	// Envoy is what the variables of Envoy's service ask for.
	Envoy envoyenv.Telemetry
	// Refusals are logged, at level info: of each rule the first in each second.
	Refusals bool
	// Keys of subjects, which have values of requests, are in the log of refusals and in spans. Without it they
	// are where a rule has detailed_metric.
	Keys bool
	// Log is where refusals go, and what goes wrong here. Nil is slog.Default.
	Log *slog.Logger
}

// Telemetry is what runs. Stop must be called.
type Telemetry struct {
	tracing *tracing // nil for none
	end     context.CancelFunc
	running sync.WaitGroup
	last    []func(context.Context) error // send the rest
	log     *slog.Logger
}

// Start begins to tell what a decider decides and what is counted. It must be called before the decider is
// asked. After an error nothing runs.
func Start(ctx context.Context, decider *decide.Decider, counted *stats.Registry, opts Options) (*Telemetry, error) {
	if opts.Env == nil {
		opts.Env = func(string) string { return "" }
	}
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	ctx, end := context.WithCancel(context.WithoutCancel(ctx)) // until Stop: after the last decision
	t := &Telemetry{end: end, log: opts.Log}
	if err := errors.Join(t.otlp(ctx, counted, opts), t.scraped(ctx, counted, opts.Envoy)); err != nil {
		t.Stop()
		return nil, err
	}
	if to := opts.Envoy.Statsd; to != nil {
		p := newPusher(to, counted, opts.Log)
		ended := make(chan struct{})
		t.running.Go(func() { defer close(ended); p.run(ctx) })
		t.last = append(t.last, func(ctx context.Context) error { <-ended; p.push(ctx); return nil })
	}
	if opts.Refusals {
		decider.Observe((&refusals{log: opts.Log, keys: opts.Keys, rules: make(map[[2]string]*throttle.Log)}).observe)
	}
	if t.tracing != nil {
		decider.Observe(t.tracing.observe)
	}
	return t, nil
}

// otlp begins with traces and metrics as far as the environment asks for them.
func (t *Telemetry) otlp(ctx context.Context, counted *stats.Registry, opts Options) error {
	traces, metrics := asked(opts.Env, "TRACES") || opts.Envoy.Tracing != nil, asked(opts.Env, "METRICS")
	if !traces && !metrics || opts.Env("OTEL_SDK_DISABLED") == "true" {
		return nil
	}
	logTo(opts.Log)
	from, err := resourceOf(ctx, opts.Envoy.Tracing)
	if err != nil {
		return fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	if traces {
		tracing, last, err := newTracing(ctx, opts.Env, opts.Envoy.Tracing, from, opts.Keys)
		if err != nil {
			return err
		}
		t.tracing, t.last = tracing, append(t.last, last)
	}
	if metrics {
		last, err := newMetrics(ctx, counted, from)
		if err != nil {
			return err
		}
		t.last = append(t.last, last)
	}
	return nil
}

// scraped lets Prometheus read the metrics on an address of their own.
func (t *Telemetry) scraped(ctx context.Context, counted *stats.Registry, envoy envoyenv.Telemetry) error {
	if envoy.PrometheusAddr == "" {
		return nil
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", envoy.PrometheusAddr)
	if err != nil {
		return fmt.Errorf("cannot listen on %s: %w (choose another with PROMETHEUS_ADDR)", envoy.PrometheusAddr, err)
	}
	t.log.Info("Prometheus is answered on an address of its own", "addr", listener.Addr().String(), "path", envoy.PrometheusPath)
	mux := http.NewServeMux()
	mux.Handle(envoy.PrometheusPath, promhttp.HandlerFor(counted.Prometheus, promhttp.HandlerOpts{Timeout: 10 * time.Second}))
	t.running.Go(func() {
		if err := httpapi.Serve(ctx, listener, mux, slog.New(slog.DiscardHandler)); err != nil {
			t.log.Error("Prometheus is not answered any more", "addr", envoy.PrometheusAddr, "error", err)
		}
	})
	return nil
}

// Handler puts what a request tells of its caller's trace into the context. It is next itself where nobody asks
// for traces.
func (t *Telemetry) Handler(next http.Handler) http.Handler {
	if t.tracing == nil {
		return next
	}
	return t.tracing.handler(next)
}

// Stop sends the rest, within three seconds, and ends what runs. Nothing must be decided any more.
func (t *Telemetry) Stop() {
	t.end()
	ctx, cancel := context.WithTimeout(context.Background(), flushTime)
	defer cancel()
	for _, last := range t.last {
		t.running.Go(func() {
			if err := last(ctx); err != nil {
				t.log.Warn("the last traces or metrics were not sent", "error", err)
			}
		})
	}
	t.running.Wait()
}
