// Package httpapi is the service's HTTP interface: POST /v1/allow, peek, reserve, settle and cancel,
// and GET /healthz, all JSON, and what Envoy's rate limit service has there, POST /json and GET /healthcheck.
// Proxies ask /v1/forward-auth. GET /openapi.yaml describes it.
package httpapi

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"example.com/sash"
	"example.com/sash/service/internal/access"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/degrade"
	"example.com/sash/service/internal/throttle"
	"example.com/sash/service/internal/wire"
)

// A Handler answers requests.
type Handler struct {
	paths   map[string]http.HandlerFunc
	decider *decide.Decider
	opts    Options
	log     throttle.Log
}

// Options for a Handler. The zero value is the default.
type Options struct {
	// Timeout bounds one decision. Zero is one second.
	Timeout time.Duration
	// MaxWait bounds how long a request can wait: at most a day. Zero is not at all.
	MaxWait time.Duration
	// Health is what GET /healthz answers. It must not wait for the store. Nil is degrade.MemoryHealth.
	Health func() degrade.Health
	// Access says which callers may decide. Nil is all.
	Access *access.Gate
	// JSON answers /json, Envoy's protocol as JSON. Nil is not found.
	JSON http.Handler
	// Draining is closed when the service is about to stop: it answers as before, but health is down and connections
	// of HTTP/1 are closed after their next answer. Nil is never.
	Draining <-chan struct{}
	// Ready is what GET /healthcheck, which is for load balancers, checks: it returns what is wrong. Nil is always
	// ready.
	Ready func(context.Context) error
	// Tokens are those of reservations. Nil is some of this handler's own.
	Tokens *wire.Tokens
	// Log gets the store's failures, at most one a second. Nil is slog.Default.
	Log *slog.Logger
}

// New returns a handler. A nil opts is the default.
func New(decider *decide.Decider, opts *Options) *Handler {
	h := &Handler{decider: decider, opts: *cmp.Or(opts, &Options{})}
	h.opts.Timeout = cmp.Or(h.opts.Timeout, time.Second)
	h.opts.Log = cmp.Or(h.opts.Log, slog.Default())
	h.opts.Tokens = cmp.Or(h.opts.Tokens, wire.NewTokens())
	if h.opts.Health == nil {
		h.opts.Health = degrade.MemoryHealth
	}
	h.log.To = h.opts.Log
	h.paths = map[string]http.HandlerFunc{
		"/v1/allow":   h.decides(true, &wire.Undecided, wire.Decide),
		"/v1/peek":    h.decides(false, &wire.Unseen, wire.Peek),
		"/v1/reserve": h.decides(true, &wire.Undecided, h.opts.Tokens.Reserve),
		"/v1/settle":  h.settle, "/v1/cancel": h.cancel, forwardAuthPath: h.forwardAuth,
		"/healthz": h.health, "/healthcheck": h.check, "/openapi.yaml": serveDocument,
	}
	if h.opts.JSON != nil {
		h.paths["/json"] = h.opts.JSON.ServeHTTP
	}
	return h
}

// open are the paths that need no credentials: load balancers have none, and the document is no secret.
var open = map[string]bool{"/healthz": true, "/healthcheck": true, "/openapi.yaml": true}

// ServeHTTP implements http.Handler. It answers callers that are not known, and puts the others into the context of their
// request. The handlers of paths check rights, because the domain is in the request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	if h.draining() {
		last(w, r)
	}
	header := "Authorization"
	if r.URL.Path == forwardAuthPath { // a proxy hands the Origin and Sec-Fetch-Site of its client on
		header = access.ProxyHeader
	} else if err := wire.Pageless(r); err != nil {
		wire.Fail(w, http.StatusForbidden, err.Error())
		return
	}
	if !open[r.URL.Path] {
		known, err := h.opts.Access.Identify(r, header)
		if err != nil {
			access.Fail(w, err)
			return
		}
		r = known
	}
	if handle := h.paths[r.URL.Path]; handle != nil {
		handle(w, r)
		return
	}
	wire.Fail(w, http.StatusNotFound, "no such path: GET /openapi.yaml lists them")
}

// statuses are those of the errors of the engine. Others are failures of the store.
var statuses = []struct {
	status int
	errs   []error
}{
	{http.StatusGone, []error{wire.ErrExpired}},
	{http.StatusNotFound, []error{config.ErrUnknownDomain}},
	{http.StatusServiceUnavailable, []error{config.ErrNone}},
	{http.StatusBadRequest, []error{sash.ErrInvalidCost}},
	{http.StatusUnprocessableEntity, []error{sash.ErrCostAboveLimit, decide.ErrCountsRefused, decide.ErrNoQueue, decide.ErrNotLimited}},
	{http.StatusForbidden, []error{wire.ErrToken}},
	{http.StatusConflict, []error{decide.ErrKept}},
}

// fail answers a request that got no answer from the engine.
func (h *Handler) fail(w http.ResponseWriter, r *http.Request, err error, silent *wire.Silence) {
	if errors.Is(err, access.ErrUnknown) || errors.Is(err, access.ErrNotAllowed) {
		access.Fail(w, err)
		return
	}
	for _, of := range statuses {
		if slices.ContainsFunc(of.errs, func(target error) bool { return errors.Is(err, target) }) {
			if of.status == http.StatusServiceUnavailable {
				wire.SetRetryAfter(w.Header())
			}
			wire.Fail(w, of.status, err.Error())
			return
		}
	}
	if r.Context().Err() == nil { // otherwise the client went away
		h.log.Log(slog.LevelError, "no decision", "error", err) // the error may disclose where the store is: not for the client
	}
	wire.SetRetryAfter(w.Header())
	text, cause := silent.Of(err)
	wire.Write(w, http.StatusServiceUnavailable, wire.Error{Error: text, Source: sash.FromPolicy.String(), Cause: cause})
}

// draining reports whether the service is about to stop.
func (h *Handler) draining() bool {
	select {
	case <-h.opts.Draining:
		return true
	default:
		return false
	}
}

// Health answers GET /healthz, on any port.
func (h *Handler) Health() http.Handler { return http.HandlerFunc(h.health) }

// health answers 200 until the service is about to stop, whatever the state of its store: neither restarting nor
// avoiding the service would bring that back.
func (h *Handler) health(w http.ResponseWriter, r *http.Request) {
	if !reads(w, r, "health") {
		return
	}
	health, status := h.opts.Health(), http.StatusOK
	if h.draining() {
		health.Status, status = degrade.Draining, http.StatusServiceUnavailable
	}
	wire.Write(w, status, health)
}

// check answers as Envoy's rate limit service does: OK, or 500 when the service is not ready or about to stop.
func (h *Handler) check(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if h.draining() {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	if h.opts.Ready != nil {
		ctx, cancel := context.WithTimeout(r.Context(), h.opts.Timeout)
		defer cancel()
		if err := h.opts.Ready(ctx); err != nil {
			h.log.Log(slog.LevelError, "not ready", "error", err)
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
	}
	_, _ = w.Write([]byte("OK"))
}

// document describes every path. Tests hold it against the handlers.
//
//go:embed openapi.yaml
var document []byte

func serveDocument(w http.ResponseWriter, r *http.Request) {
	if !reads(w, r, "document") {
		return
	}
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(document) // a client that is gone is no concern of ours
}

// reads reports whether a request reads, and answers it if not.
func reads(w http.ResponseWriter, r *http.Request, what string) bool {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return true
	}
	w.Header().Set("Allow", "GET, HEAD")
	wire.Fail(w, http.StatusMethodNotAllowed, "method "+r.Method+": GET the "+what+" here")
	return false
}
