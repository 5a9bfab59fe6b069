// Package admin is the service's port for operators. docs/admin.md has the endpoints.
//
// Anyone who reaches the port can read counters and the configuration, as in Envoy's rate limit service. Endpoints
// that change something or name users require a token or a client certificate. They are off if neither is configured.
package admin

import (
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"mime"
	"net/http"
	"net/http/pprof"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"example.com/sash"
	"example.com/sash/service/internal/cause"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/degrade"
	"example.com/sash/service/internal/exceptions"
	"example.com/sash/service/internal/stats"
	"example.com/sash/service/internal/wire"
)

// Loading records the outcome of the last loading of the configuration. It is safe for concurrent use.
type Loading struct {
	last atomic.Pointer[attempt]
}

type attempt struct {
	at  time.Time
	err error
}

// Note records the outcome of loading the configuration. Nil is success.
func (l *Loading) Note(err error) { l.last.Store(&attempt{time.Now(), err}) }

// Options for New. A field may be nil only if its comment says so.
type Options struct {
	// Guard identifies the callers with access.
	Guard *Guard
	// Stats counts decisions. It must observe the decider.
	Stats *stats.Registry
	// Loading is the outcome of the last loading of the configuration.
	Loading *Loading
	// Exceptions are the overrides and bans.
	Exceptions *exceptions.Book
	// Store returns the state of the store.
	Store func() degrade.Report
	// Health answers GET /healthz, as on the data port.
	Health http.Handler
	// Log receives every change with its author, and failures.
	Log *slog.Logger
}

type handler struct {
	Options
	decider *decide.Decider
}

// New returns a handler for a decider.
func New(decider *decide.Decider, opts Options) http.Handler {
	h := &handler{Options: opts, decider: decider}
	h.Stats.Prometheus.MustRegister(&collector{h})
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(h.Stats.Prometheus, promhttp.HandlerOpts{Timeout: 10 * time.Second}))
	mux.Handle("GET /healthz", h.Health)
	mux.HandleFunc("GET /stats", h.stats)
	mux.HandleFunc("GET /rlconfig", h.rlconfig)
	mux.HandleFunc("GET /{$}", index)
	mux.HandleFunc("GET /dashboard", dashboard)
	mux.HandleFunc("GET /dashboard/", dashboard)
	profiles := map[string]http.HandlerFunc{"": pprof.Index, "profile": pprof.Profile, "trace": pprof.Trace, "symbol": pprof.Symbol}
	for name, of := range profiles {
		mux.HandleFunc("GET /debug/pprof/"+name, h.Guard.private(of))
	}
	mux.HandleFunc("POST /login", h.Guard.login)
	mux.HandleFunc("POST /logout", h.Guard.logout)
	mux.HandleFunc("GET /admin/v1/config", h.config)
	mux.HandleFunc("GET /admin/v1/state", h.state)
	mux.HandleFunc("GET /admin/v1/subject", h.Guard.private(h.subject))
	mux.HandleFunc("POST /admin/v1/reset", h.Guard.private(h.reset))
	for _, kind := range []exceptions.Kind{exceptions.Override, exceptions.Ban} {
		path := "/admin/v1/" + string(kind) + "s"
		mux.HandleFunc("GET "+path, h.Guard.private(h.list(kind)))
		mux.HandleFunc("POST "+path, h.Guard.private(h.put(kind)))
		mux.HandleFunc("DELETE "+path+"/{id}", h.Guard.private(h.remove(kind)))
	}
	next := h.Guard.identify(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if err := wire.SameOrigin(r); err != nil { // a browser would add its cookies and certificates for any page
			wire.Fail(w, http.StatusForbidden, err.Error())
			return
		}
		next.ServeHTTP(w, r)
	})
}

func index(w http.ResponseWriter, _ *http.Request) {
	plain(w)
	fmt.Fprint(w, "/dashboard     decisions, subjects and the store, in a browser\n/rlconfig      the configuration in use, and the error of the one on disk\n"+
		"/stats         counters, as text\n/metrics       counters, for Prometheus\n/healthz       the health, for liveness\n/debug/pprof/  profiles of the process, with the token\n"+
		"/admin/v1/     config, state, subject, reset, overrides and bans, as JSON\n")
}

func (h *handler) stats(w http.ResponseWriter, _ *http.Request) {
	plain(w)
	_ = h.Stats.WriteText(w) // the client may have disconnected
}

func (h *handler) rlconfig(w http.ResponseWriter, _ *http.Request) {
	plain(w)
	if last := h.Loading.last.Load(); last != nil && last.err != nil {
		fmt.Fprintf(w, "# Loading the configuration failed at %s: %v\n# The last valid one is in use:\n", last.at.UTC().Format(time.RFC3339), last.err)
	}
	_ = h.decider.Config().Dump(w)
}

func ruleOf(r *config.Rule) map[string]any {
	return map[string]any{"rule": r.Metric(), "domain": r.Domain, "path": r.Path, "shadow_mode": r.Shadow, "text": r.Describe()}
}

func (h *handler) config(w http.ResponseWriter, r *http.Request) {
	by, cfg := h.Guard.by(r), h.decider.Config()
	rules := []map[string]any{}
	for _, r := range cfg.Rules() {
		rules = append(rules, ruleOf(r))
	}
	answer := map[string]any{
		"access": map[string]any{
			"authenticated": by != "", "by": by, "token": len(h.Guard.Tokens) > 0, "certificate": h.Guard.Certificates,
		},
		"domains": cfg.Domains(), "rules": rules, "error": nil,
	}
	if last := h.Loading.last.Load(); last != nil && last.err != nil {
		answer["error"] = last.err.Error()
	}
	wire.Write(w, http.StatusOK, answer)
}

func plain(w http.ResponseWriter) { w.Header().Set("Content-Type", "text/plain; charset=utf-8") }

const timeout = 2 * time.Second

// read reads a JSON body that names a subject. It requires the content type of JSON, which a form on another
// site's page cannot send. It answers an invalid request itself, and then returns nil.
func read[T any, P interface {
	*T
	Check() error
}](w http.ResponseWriter, r *http.Request) *T {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" {
		wire.Fail(w, http.StatusUnsupportedMediaType, "send application/json")
		return nil
	}
	body := wire.Read[T](w, r, "domain and entries")
	if body == nil {
		return nil
	}
	if err := P(body).Check(); err != nil {
		wire.Fail(w, http.StatusBadRequest, err.Error())
		return nil
	}
	return body
}

func (h *handler) refuse(w http.ResponseWriter, r *http.Request, err error) {
	is := func(of error) bool { return errors.Is(err, of) }
	wrong := []error{decide.ErrNotLimited, config.ErrNoDescriptor, decide.ErrNoSecretKeys, exceptions.ErrInvalid, sash.ErrInvalidLimit}
	status := 0 // of a failure of the store
	switch {
	case is(config.ErrUnknownDomain):
		status = http.StatusNotFound
	case is(exceptions.ErrFull):
		status = http.StatusConflict
	case is(sash.ErrUnsupported):
		status = http.StatusNotImplemented
	case slices.ContainsFunc(wrong, is):
		status = http.StatusUnprocessableEntity
	}
	if status != 0 {
		wire.Fail(w, status, strings.TrimPrefix(err.Error(), "sash: "))
		return
	}
	if r.Context().Err() == nil {
		h.Log.Error("a request to the admin port failed", "path", wire.Clip(r.URL.Path), "error", err)
	}
	text := "the store did not answer"
	if r.Method != http.MethodGet {
		text += ": the change may have been made or not"
	}
	wire.SetRetryAfter(w.Header())
	wire.Fail(w, http.StatusServiceUnavailable, text)
}

const contentPolicy = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"

// page is the dashboard, which shows what the endpoints return: plain HTML, CSS and JavaScript, without a build step.
//
//go:embed page
var page embed.FS

// kinds are the content types by extension. The machine's own table may label a script as text.
var kinds = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
	".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

func dashboard(w http.ResponseWriter, r *http.Request) {
	name := "index.html"
	if r.URL.Path != "/dashboard" {
		name = strings.TrimPrefix(r.URL.Path, "/dashboard/")
	}
	content, err := page.ReadFile("page/" + name)
	kind := kinds[path.Ext(name)]
	if err != nil || kind == "" {
		http.NotFound(w, r)
		return
	}
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("Content-Length", strconv.Itoa(len(content)))
	h.Set("Content-Security-Policy", contentPolicy)
	h.Set("Referrer-Policy", "no-referrer")
	_, _ = w.Write(content) // the client may have disconnected
}

// top is how many subjects a snapshot lists in each order.
const top = 15

func (h *handler) state(w http.ResponseWriter, r *http.Request) {
	snap := h.Stats.Snapshot()
	known := h.Guard.by(r) != ""
	answer := map[string]any{
		"at": wire.Instant(snap.At), "since": wire.Instant(snap.Since), // when counting began
		"authenticated": known, "requests": snap.Requests, "rules": snap.Rules, "store": h.storeState(known), "top": nil,
		"latency": snap.Latency, // of the store, including the network and the queue in front of it
	}
	if known { // the subjects that request the most units, and those refused most often
		units, since := h.Stats.Hottest(stats.ByUnits, top)
		refused, _ := h.Stats.Hottest(stats.ByRefused, top)
		answer["top"] = map[string]any{"since": wire.Instant(since), "units": units, "refused": refused}
	}
	wire.Write(w, http.StatusOK, answer)
}

// storeState returns the state of the store, with free text only for a caller with access. Unknown values are
// null. The keys of a home and a memory are absent if the store has none.
func (h *handler) storeState(known bool) map[string]any {
	report := h.Store()
	stats := report.Stats
	_, err := h.Exceptions.Status()
	state := map[string]any{
		"status": report.Status, "store": report.Health.Store, "address": wire.Text(report.Address), "cause": wire.Text(report.Cause),
		"reason": wire.Text(cause.Reasons[report.Cause]), "error": nil, "uncounted": report.Uncounted,
		"since": wire.When(report.Since), "for": nil, // it went down or came back
		"instances": report.Instances, "in_flight": stats.InFlight,
		"local":     map[string]any{"backlog": stats.Backlog, "written": stats.Written, "lost": stats.Lost, "doubtful": stats.Doubtful},
		"overrides": len(h.Exceptions.List(exceptions.Override)), "bans": len(h.Exceptions.List(exceptions.Ban)),
		"exceptions_current": err == nil,
	}
	if of := report.Home; of != nil {
		up := "down"
		if of.Up {
			up = "up"
		}
		state["home"] = map[string]any{"state": up, "address": of.Address, "calls": of.Calls, "failed": of.Failed, "leased": of.Leased}
	}
	if m := report.Memory; m != nil {
		state["memory"] = map[string]any{"subjects": m.Keys, "bytes": m.Bytes, "max_bytes": m.MaxBytes}
	}
	if report.Err != nil && known {
		state["error"] = report.Err.Error()
	}
	if !report.Since.IsZero() {
		state["for"] = wire.Seconds(time.Since(report.Since))
	}
	return state
}

type collector struct{ *handler }

func (c *collector) Describe(to chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, to) }

func (c *collector) Collect(to chan<- prometheus.Metric) {
	metric := func(kind prometheus.ValueType, name, help string, v float64) {
		to <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, nil, nil), kind, v)
	}
	const gauge, counter = prometheus.GaugeValue, prometheus.CounterValue
	report := c.Store()
	up := report.Status == "ok" || report.Health.Store == "memory"
	metric(gauge, "sash_store_up", "1 while the store decides, 0 while the failure mode answers.", stats.Bit(up))
	if s := report.Stats; report.Health.Store != "memory" {
		metric(gauge, "sash_store_calls_in_flight", "Calls that Redis is processing.", float64(s.InFlight))
		metric(gauge, "sash_local_backlog_subjects", "Subjects whose local charges wait to be written to Redis.", float64(s.Backlog))
		metric(counter, "sash_local_units_written_total", "Units admitted locally and written to Redis later.", float64(s.Written))
		metric(counter, "sash_local_units_lost_total", "Units admitted locally that will never be written to Redis.", float64(s.Lost))
		metric(counter, "sash_local_units_doubtful_total", "Units admitted locally that Redis may have charged already.", float64(s.Doubtful))
	}
	if m := report.Memory; m != nil {
		metric(gauge, "sash_memory_subjects", "Subjects in this process's memory.", float64(m.Keys))
		metric(gauge, "sash_memory_bytes", "Bytes of the subjects in this process's memory.", float64(m.Bytes))
		metric(gauge, "sash_memory_max_bytes", "Most bytes of subjects in this process's memory.", float64(m.MaxBytes))
		metric(counter, "sash_memory_evicted_total", "Subjects that made room for others in a full memory.", float64(m.Evicted))
		metric(counter, "sash_memory_turned_away_total", "Calls for which a full memory had no room.", float64(m.TurnedAway))
	}
	if h := report.Home; h != nil {
		metric(gauge, "sash_home_up", "Whether the home answers.", stats.Bit(h.Up))
		metric(counter, "sash_home_calls_total", "Calls to the home.", float64(h.Calls))
		metric(counter, "sash_home_failures_total", "Calls to the home without an answer.", float64(h.Failed))
		metric(counter, "sash_leased_units_total", "Units that this instance has leased from the home for its region.", float64(h.Leased))
		metric(counter, "sash_lease_spent_units_total", "Leased units that calls of this instance spent.", float64(h.Spent))
		metric(counter, "sash_lease_returned_units_total", "Leased units that this instance gave back unspent.", float64(h.Returned))
	}
	metric(gauge, "sash_instances", "Instances that share the limits; 0 while unknown.", float64(report.Instances))
	excepted := prometheus.NewDesc("sash_exceptions", "Overrides and bans in effect.", []string{"kind"}, nil)
	for _, kind := range []exceptions.Kind{exceptions.Override, exceptions.Ban} {
		to <- prometheus.MustNewConstMetric(excepted, gauge, float64(len(c.Exceptions.List(kind))), string(kind))
	}
}
