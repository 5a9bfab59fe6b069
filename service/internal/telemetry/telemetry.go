// Package telemetry exports what the service decides: to statsd servers, OpenTelemetry collectors, Prometheus on a
// port of its own, and the log of refusals. It neither delays nor changes a decision. An export that is not
// configured costs nothing.
package telemetry

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"example.com/sash/service/internal/cause"
	"example.com/sash/service/internal/conns"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/httpapi"
	"example.com/sash/service/internal/stats"
	"example.com/sash/service/internal/throttle"
)

const flushTime = 3 * time.Second

const maxScrapers = 32

// Options say what to export, and where. The zero value exports nothing.
type Options struct {
	// Env is the environment, for the OTEL_… variables. Nil is empty.
	Env func(string) string
	// Exporters are the exporters that the variables of Envoy's service configure.
	Exporters Exporters
	// Refusals logs refusals at level info, at most one a second for each rule.
	Refusals bool
	// Keys puts the keys of subjects, which contain values of requests, into logs and spans. Without Keys, only the keys
	// of rules with detailed_metric are included.
	Keys bool
	// Log receives refusals and failed exports. Nil is slog.Default.
	Log *slog.Logger
}

// Exporters configure where metrics and traces are exported, besides the admin port and the OTEL_… variables. The zero
// value exports nowhere.
type Exporters struct {
	// Statsd receives counters and gauges. Nil is none.
	Statsd *Statsd
	// PrometheusAddr is an address where Prometheus reads PrometheusPath. Empty leaves only the admin port.
	PrometheusAddr, PrometheusPath string
	// Tracing turns traces on. Nil leaves it to the OTEL_… variables.
	Tracing *Tracing
}

// Statsd is a server that receives counters and gauges.
type Statsd struct {
	// Network is tcp or udp, and Addr a host and a port.
	Network, Addr string
	// Dog sends Tags in the form of DogStatsD, instead of as parts of names.
	Dog bool
	// Tags are key:value, sorted by key.
	Tags []string
	// Interval is the time between two rounds.
	Interval time.Duration
}

// Tracing configures traces. The OTEL_… variables configure the rest.
type Tracing struct {
	// Protocol is http. Empty leaves it to the OTEL_… variables.
	Protocol string
	// Service, Namespace and Instance name this process. Namespace and Instance may be empty.
	Service, Namespace, Instance string
	// Rate is the share of traces to keep among those that begin here: 0 to 1.
	Rate float64
}

// Telemetry is a set of running exports. The caller must call Stop.
type Telemetry struct {
	tracing *tracing // nil for none
	end     context.CancelFunc
	running sync.WaitGroup
	log     *slog.Logger
}

// Start begins to export the decisions of a decider and the counters of a registry, until Stop. Call it before the
// first decision. After an error, no export runs.
func Start(ctx context.Context, decider *decide.Decider, registry *stats.Registry, opts Options) (*Telemetry, error) {
	if opts.Env == nil {
		opts.Env = func(string) string { return "" }
	}
	opts.Log = cmp.Or(opts.Log, slog.Default())
	ctx, end := context.WithCancel(context.WithoutCancel(ctx)) // until Stop: after the last decision
	t := &Telemetry{end: end, log: opts.Log}
	if err := errors.Join(t.startTraces(ctx, registry, opts), t.startPrometheus(ctx, registry, opts.Exporters)); err != nil {
		t.Stop()
		return nil, err
	}
	if to := opts.Exporters.Statsd; to != nil {
		t.running.Go(func() { repeat(ctx, to.Interval, nil, newPusher(to, registry, opts.Log).push) })
	}
	decider.Observe(newRefusals(opts.Log, opts.Refusals, opts.Keys).observe)
	if t.tracing != nil {
		decider.Observe(t.tracing.observe)
	}
	return t, nil
}

func (t *Telemetry) startTraces(ctx context.Context, registry *stats.Registry, opts Options) error {
	if opts.Env("OTEL_SDK_DISABLED") == "true" {
		return nil
	}
	s, envoy, share := &settings{env: opts.Env}, opts.Exporters.Tracing, 1.0
	if !s.traces() && envoy == nil {
		return s.err
	}
	if envoy != nil {
		share = envoy.Rate
	}
	to := newSender(s, envoy, registry, opts.Log)
	share, parentBased := s.sampler(share)
	if s.err != nil {
		return fmt.Errorf("traces: %w", s.err)
	}
	t.tracing = &tracing{to: to.add, share: share, parentBased: parentBased, keys: opts.Keys}
	t.running.Go(func() {
		repeat(ctx, to.delay, to.full, to.push)
		to.client.CloseIdleConnections()
	})
	return nil
}

// repeat exports after each period, and when woken, until ctx ends. Then it exports the rest, within flushTime.
func repeat(ctx context.Context, period time.Duration, wake <-chan struct{}, export func(context.Context)) {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
			defer cancel()
			export(last)
			return
		case <-ticker.C:
		case <-wake:
		}
		export(ctx)
	}
}

// startPrometheus serves the metrics on the address that Envoy's variables configure, if they do.
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

// Handler puts the caller's span into the context of each request. Without traces it returns next itself.
func (t *Telemetry) Handler(next http.Handler) http.Handler {
	if t.tracing == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p := readParent(r.Header.Get); p != nil {
			r = r.WithContext(context.WithValue(r.Context(), parentKey{}, p))
		}
		next.ServeHTTP(w, r)
	})
}

// Stop exports what is left, within three seconds, and ends all exports. Call it after the last decision.
func (t *Telemetry) Stop() {
	t.end()
	t.running.Wait()
}

// maxRules is the most rules with their own throttle of refusals. Other rules share one throttle.
const maxRules = 10_000

// refusals logs refusals, at most one a second for each rule and each candidate.
type refusals struct {
	log   *slog.Logger
	all   bool // log the refusals of rules, and not only those of candidates that did not bind
	keys  bool // log the keys of all rules; otherwise only those of rules with detailed_metric
	rules *stats.Bounded[string, throttle.Log]
}

func newRefusals(log *slog.Logger, all, keys bool) *refusals {
	return &refusals{log: log, all: all, keys: keys, rules: stats.NewBounded[string, throttle.Log](maxRules, "", strings.Clone)}
}

func (r *refusals) observe(ctx context.Context, o *decide.Observation) {
	if o.Outcome() == decide.Invalid || !r.log.Enabled(ctx, slog.LevelInfo) {
		return
	}
	for i := range o.Answers {
		a, outcome := &o.Answers[i], o.OutcomeOf(i)
		if r.all && (outcome == decide.Refused || outcome == decide.Shadowed) {
			r.write(ctx, o, i, "refused", slog.String("source", o.OriginOf(i).String()))
		}
		if c := a.Candidate; o.Err == nil && c != nil && c.Cost > 0 && c.Refused && !c.Enforced && !a.Refused {
			r.write(ctx, o, i, "a candidate would have refused what was allowed",
				slog.String("limit", c.RefusedBy.Limit.Name), slog.Float64("retry_after", c.RefusedBy.RetryAfter.Seconds()))
		}
	}
}

// write writes the line of part i, unless its rule had one with the same text less than a second ago.
func (r *refusals) write(ctx context.Context, o *decide.Observation, i int, text string, more ...slog.Attr) {
	domain, rule := o.Rule(i)
	if skipped, ok := r.rules.Get(text + " " + domain + " " + rule).Allow(o.Began.Add(o.Took)); ok {
		more = append(more, slog.Int64("not_logged_before", skipped))
		r.log.LogAttrs(ctx, slog.LevelInfo, text, append(details(o, i, r.keys), more...)...)
	}
}

// details describe the outcome of part i, for the log and for spans. They contain no values of the request, and so no
// domain that is not configured. With keys, or under a rule with detailed_metric, they also contain the key of the subject.
func details(o *decide.Observation, i int, keys bool) []slog.Attr {
	a := &o.Answers[i]
	domain, rule := o.Rule(i)
	attrs := []slog.Attr{slog.String("domain", domain), slog.String("rule", rule), slog.Int64("units", a.Cost)}
	if limit := o.RefusedBy(i); limit != "" {
		attrs = append(attrs, slog.String("limit", limit), slog.Float64("retry_after", a.RefusedBy.RetryAfter.Seconds()))
	}
	if o.OutcomeOf(i) == decide.Shadowed {
		attrs = append(attrs, slog.Bool("shadow", true))
	}
	if a.Cause != nil {
		attrs = append(attrs, slog.String("cause", cause.Of(a.Cause)))
	}
	if keys || a.Rule != nil && a.Rule.Detailed {
		attrs = append(attrs, slog.String("key", a.Key))
	}
	return attrs
}

const (
	statsdTime = 2 * time.Second
	udpPayload = 1432 // fits into an Ethernet frame
	tcpPayload = 8 << 10
)

// A pusher periodically sends the increments of the counters, and the gauges, to a statsd server. If the server is
// down, that only affects the log. The server receives the increments when it is back.
type pusher struct {
	to       *Statsd
	registry *stats.Registry
	failures throttle.Log
	tags     string // follows each line, as DogStatsD writes them
	suffix   string // the tags, as a part of each name
	sent     map[string]uint64
}

func newPusher(to *Statsd, registry *stats.Registry, log *slog.Logger) *pusher {
	p := &pusher{to: to, registry: registry, sent: make(map[string]uint64), failures: throttle.Log{To: log, Every: time.Minute}}
	between := "|#"
	for _, tag := range to.Tags {
		key, value, _ := strings.Cut(tag, ":")
		value = strings.NewReplacer(".", "_", ":", "_", "|", "_").Replace(value)
		if to.Dog {
			p.tags, between = p.tags+between+key+":"+value, ","
		} else {
			p.suffix += ".__" + key + "=" + value
		}
	}
	return p
}

func (p *pusher) push(ctx context.Context) {
	if err := p.send(ctx); err != nil {
		p.registry.ExportFailed("statsd")
		p.failures.Log(slog.LevelWarn, "counters do not reach the statsd server", "server", p.to.Addr, "error", err)
	}
}

func (p *pusher) send(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, statsdTime)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, p.to.Network, p.to.Addr)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	batch := bytes.NewBuffer(make([]byte, 0, tcpPayload))
	payload := tcpPayload
	if p.to.Network == "udp" {
		payload = udpPayload
	}
	add := func(name string, n uint64, kind string) {
		line := fmt.Sprintf("%s%s:%d|%s%s\n", name, p.suffix, n, kind, p.tags)
		if len(line) > payload { // a name too long for a packet is left out
			return
		}
		if batch.Len()+len(line) > payload && err == nil {
			_, err = batch.WriteTo(conn)
		}
		batch.WriteString(line)
	}
	before := p.sent
	p.sent = make(map[string]uint64, len(before)) // drops the counters that are gone
	p.registry.Counters(func(name string, count uint64) {
		p.sent[name] = count
		grown := count - before[name]
		if count < before[name] { // its rule was gone for a while
			grown = count
		}
		if grown > 0 {
			add(name, grown, "c")
		}
	})
	p.registry.Gauges(func(name string, now uint64) { add(name, now, "g") })
	if err == nil {
		_, err = batch.WriteTo(conn)
	}
	return err
}
