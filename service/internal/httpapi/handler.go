// Package httpapi is the service's HTTP interface: POST /v1/allow and GET /healthz, both JSON, and what
// Envoy's rate limit service has there, POST /json and GET /healthcheck. Proxies ask /v1/forward-auth.
package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"example.com/sash"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/degrade"
	"example.com/sash/service/internal/throttle"
)

// A Handler answers requests.
type Handler struct {
	mux     *http.ServeMux
	decider *decide.Decider
	opts    Options
	log     throttle.Errors
}

// Options for a Handler. The zero value is the default.
type Options struct {
	// Timeout bounds one decision. Zero is one second.
	Timeout time.Duration
	// Health is told by GET /healthz. It must not wait for the store. Nil is degrade.Memory.
	Health func() degrade.Health
	// JSON answers /json, Envoy's protocol as JSON. Nil is not found.
	JSON http.Handler
	// Ready is asked by GET /healthcheck, which is for load balancers; nil means always ready. It returns
	// what is wrong.
	Ready func(context.Context) error
	// Log gets the store's failures, at most one a second. Nil is slog.Default.
	Log *slog.Logger
}

// New returns a handler. A nil opts is the default.
func New(decider *decide.Decider, opts *Options) *Handler {
	h := &Handler{mux: http.NewServeMux(), decider: decider}
	if opts != nil {
		h.opts = *opts
	}
	if h.opts.Timeout <= 0 {
		h.opts.Timeout = time.Second
	}
	if h.opts.Log == nil {
		h.opts.Log = slog.Default()
	}
	if h.opts.Health == nil {
		h.opts.Health = degrade.Memory
	}
	h.log.To = h.opts.Log
	h.mux.HandleFunc("/v1/allow", h.allow)
	h.mux.HandleFunc("/v1/forward-auth", h.forwardAuth)
	h.mux.HandleFunc("/healthz", h.health)
	h.mux.HandleFunc("/healthcheck", h.check)
	if h.opts.JSON != nil {
		h.mux.Handle("/json", h.opts.JSON)
	}
	h.mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		fail(w, http.StatusNotFound, "no such path: there are POST /v1/allow and GET /healthz")
	})
	return h
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	h.mux.ServeHTTP(w, r)
}

func (h *Handler) allow(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		fail(w, http.StatusMethodNotAllowed, "method "+r.Method+": POST a request here")
		return
	}
	req, problem := read(w, r)
	if problem != nil {
		fail(w, problem.status, problem.text)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), h.opts.Timeout)
	defer cancel()
	v, err := h.decider.Decide(ctx, req.Domain, req.Entries, req.Cost)
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	status := http.StatusOK
	if !v.Allowed {
		status = http.StatusTooManyRequests
		w.Header().Set("Retry-After", strconv.FormatInt(v.RetryAfter.RoundUp(), 10))
	}
	write(w, status, v)
}

// refuse answers a request that was not decided.
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case errors.Is(err, config.ErrUnknownDomain):
		fail(w, http.StatusNotFound, err.Error())
	case errors.Is(err, sash.ErrInvalidCost):
		fail(w, http.StatusBadRequest, err.Error())
	case errors.Is(err, sash.ErrCostAboveLimit):
		fail(w, http.StatusUnprocessableEntity, err.Error())
	default:
		if r.Context().Err() == nil { // otherwise the client went away
			h.log.Log("no decision", err) // the store's words may tell where it is: not for the client
		}
		w.Header().Set("Retry-After", "1")
		text := "the store did not answer: there is no decision, and whether the call was charged is not known"
		cause := degrade.Cause(err)
		if cause == "down" || cause == "busy" {
			text = "the store is not asked for now: there is no decision, and nothing was charged"
		}
		write(w, http.StatusServiceUnavailable, map[string]string{"error": text, "source": sash.FromPolicy.String(), "cause": cause})
	}
}

// health answers 200 as long as the service answers at all, in which state it may be: neither ending nor
// avoiding it would bring its store back.
func (h *Handler) health(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		fail(w, http.StatusMethodNotAllowed, "method "+r.Method+": GET the health here")
		return
	}
	write(w, http.StatusOK, h.opts.Health())
}

// check answers as Envoy's rate limit service does: OK, or 500 when something it was told to need is missing.
func (h *Handler) check(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if h.opts.Ready != nil {
		ctx, cancel := context.WithTimeout(r.Context(), h.opts.Timeout)
		defer cancel()
		if err := h.opts.Ready(ctx); err != nil {
			h.log.Log("not ready", err)
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
	}
	_, _ = w.Write([]byte("OK"))
}

// fail answers {"error": text}.
func fail(w http.ResponseWriter, status int, text string) {
	write(w, status, map[string]string{"error": text})
}

func write(w http.ResponseWriter, status int, body any) {
	b, err := json.Marshal(body)
	if err != nil { // every body here can be marshalled
		status, b = http.StatusInternalServerError, []byte(`{"error":"the answer could not be written"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n')) // a client that is gone is no concern of ours
}
