// Package httpapi is the service's HTTP interface in JSON: POST /v1/allow, peek, reserve, settle, cancel and
// extend, and GET /healthz. Like Envoy's rate limit service, it has POST /json and GET /healthcheck. Proxies
// call /v1/forward-auth. GET /openapi.yaml describes the interface.
package httpapi

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"mime"
	"net/http"
	"strconv"
	"strings"
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
	Timeout time.Duration               // bounds one decision; zero is one second
	MaxWait time.Duration               // bounds how long a request can wait, a day at most; zero is not at all
	Access  *access.Gate                // which callers may decide; nil permits all
	Tokens  *wire.Tokens                // seals reservations; nil is a random key of this handler
	JSON    http.Handler                // answers /json, Envoy's protocol as JSON; nil is not found
	Health  func() degrade.Health       // answers GET /healthz, without waiting for the store; nil is degrade.MemoryHealth
	Ready   func(context.Context) error // returns why GET /healthcheck reports that the service is not ready; nil is always ready
	Log     *slog.Logger                // receives the store's failures, at most one line a second; nil is slog.Default
	// Draining is closed when the service is about to stop. The service then answers as before, but reports
	// itself as down, and closes each HTTP/1 connection after its next answer. Nil never drains.
	Draining <-chan struct{}
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
		"/v1/settle":  h.ofToken(true, &wire.Unsettled, h.settle),
		"/v1/cancel":  h.ofToken(false, &wire.Unsettled, h.settle),
		"/v1/extend":  h.ofToken(false, &wire.Unextended, h.extend), forwardAuthPath: h.forwardAuth,
		"/healthz": reads("health", h.health), "/healthcheck": h.check, "/openapi.yaml": reads("document", serveDocument),
	}
	if h.opts.JSON != nil {
		h.paths["/json"] = h.opts.JSON.ServeHTTP
	}
	return h
}

// open lists the paths without credentials: load balancers have none, and the OpenAPI document is not secret.
var open = map[string]bool{"/healthz": true, "/healthcheck": true, "/openapi.yaml": true}

// ServeHTTP implements http.Handler. It refuses unknown callers, and stores known ones in the request's
// context. The handlers of the paths check rights, because the domain is in the request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	if h.draining() {
		last(w, r)
	}
	header := "Authorization"
	if r.URL.Path == forwardAuthPath { // a proxy passes on the Origin and Sec-Fetch-Site of its client
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

func (h *Handler) fail(w http.ResponseWriter, r *http.Request, err error, silent *wire.Silence) {
	if errors.Is(err, access.ErrUnknown) || errors.Is(err, access.ErrNotAllowed) {
		access.Fail(w, err)
		return
	}
	if status, _ := wire.Codes(err); status > 0 {
		if status == http.StatusServiceUnavailable {
			wire.SetRetryAfter(w.Header())
		}
		wire.Fail(w, status, err.Error())
		return
	}
	if r.Context().Err() == nil { // otherwise the client went away
		h.log.Log(slog.LevelError, "no decision", "error", err) // not for the client: the error may disclose where the store is
	}
	wire.SetRetryAfter(w.Header())
	text, cause := silent.Of(err)
	wire.Write(w, http.StatusServiceUnavailable, wire.Error{Error: text, Source: sash.FromPolicy.String(), Cause: cause})
}

func (h *Handler) draining() bool {
	select {
	case <-h.opts.Draining:
		return true
	default:
		return false
	}
}

// Health answers GET /healthz, on any port.
func (h *Handler) Health() http.Handler { return h.paths["/healthz"] }

// health answers 200 until the service is about to stop, whatever the state of the store. Restarting or
// avoiding the service would not repair the store.
func (h *Handler) health(w http.ResponseWriter, _ *http.Request) {
	health, status := h.opts.Health(), http.StatusOK
	if h.draining() {
		health.Status, status = degrade.Draining, http.StatusServiceUnavailable
	}
	wire.Write(w, status, health)
}

// check answers like Envoy's rate limit service: OK, or 500 when the service is not ready or about to stop.
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

func serveDocument(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(document) // an error means that the client is gone
}

func reads(what string, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			wire.Fail(w, http.StatusMethodNotAllowed, "method "+r.Method+": GET the "+what+" here")
			return
		}
		next(w, r)
	}
}

// decides returns a handler for decisions, made by one way of the engine. It answers 200, or 429 if a charging decision refuses.
func (h *Handler) decides(charges bool, silent *wire.Silence, by wire.Way) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		req, ok := h.read(w, r, charges)
		if !ok {
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), h.opts.Timeout)
		defer cancel()
		decision, err := by(ctx, h.decider, &req)
		if err != nil {
			h.fail(w, r, err, silent)
			return
		}
		status := http.StatusOK
		if charges && !decision.Allowed {
			status = http.StatusTooManyRequests
			w.Header().Set("Retry-After", strconv.FormatInt(decision.RetryAfter.RoundUp(), 10))
		}
		wire.Write(w, status, decision)
	}
}

// A settlement is the body of POST /v1/settle, which must have Used, so that no charge is given back by
// mistake. The bodies of /v1/cancel and /v1/extend have no Used.
type settlement struct {
	Token string `json:"token"` // from the answer of POST /v1/reserve
	Used  units  `json:"used,omitempty"`
}

// units is a number, or a list with one number for each part of a request.
type units []int64

// UnmarshalJSON reads a number or a list. Null is none.
func (u *units) UnmarshalJSON(b []byte) error {
	switch {
	case string(b) == "null":
		return nil
	case bytes.Contains(b, []byte("null")):
		return errors.New("used has a null: send the units of each part, 0 to give all of them back")
	case b[0] == '[':
		return json.Unmarshal(b, (*[]int64)(u))
	}
	*u = []int64{0}
	return json.Unmarshal(b, &(*u)[0])
}

// ofToken returns a handler for requests with the token of a reservation, and with the units used if takesUsed is set.
func (h *Handler) ofToken(takesUsed bool, silent *wire.Silence,
	do func(ctx context.Context, of *settlement, permit func(domain string) error) (answer any, err error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body := readAs[settlement](w, r, "token and used")
		switch {
		case body == nil:
		case takesUsed && len(body.Used) == 0:
			wire.Fail(w, http.StatusBadRequest, "used is missing: send the units that the call used, or POST /v1/cancel to give all of it back")
		case !takesUsed && body.Used != nil:
			wire.Fail(w, http.StatusBadRequest, "used is for POST /v1/settle")
		case body.Token == "" || len(body.Token) > wire.MaxToken:
			wire.Fail(w, http.StatusBadRequest, "the token is missing, or too long: send what POST /v1/reserve answered")
		default:
			answer, err := do(r.Context(), body, func(domain string) error { return h.opts.Access.Check(r.Context(), domain, access.Decide) })
			if err != nil {
				h.fail(w, r, err, silent)
				return
			}
			wire.Write(w, http.StatusOK, answer)
		}
	}
}

func (h *Handler) settle(ctx context.Context, of *settlement, permit func(domain string) error) (any, error) {
	return map[string]bool{"settled": true}, h.opts.Tokens.Settle(ctx, h.decider, of.Token, of.Used, permit)
}

func (h *Handler) extend(ctx context.Context, of *settlement, permit func(domain string) error) (any, error) {
	token, err := h.opts.Tokens.Extend(ctx, h.decider, of.Token, permit)
	return settlement{Token: token}, err
}

// A request is the body of POST /v1/allow, /v1/peek and /v1/reserve.
type request struct {
	Domain string `json:"domain"`
	part          // of a request with one subject
	// Parts are the parts of a request with several subjects: all of them, by default, or any.
	Parts []part `json:"parts"`
	Of    string `json:"of"`
	// ID names the request, so that it can be repeated and is charged once. Nil is none. Requests that charge
	// nothing ignore it.
	ID *string `json:"id"`
	// WaitUpTo is how many seconds the caller can wait. Requests that charge nothing ignore it.
	WaitUpTo wire.Seconds `json:"wait_up_to"`
}

type part struct {
	Entries []entry `json:"entries"`
	// Cost is the units requested. Nil means the cost of the matching rule, which is 1 by default.
	Cost *int64 `json:"cost"`
}

func (r *request) asks() (req decide.Request, err error) {
	parts := r.Parts
	switch {
	case parts == nil && r.Of == "":
		parts = []part{r.part}
	case len(parts) == 0 || r.Entries != nil || r.Cost != nil || r.Of != "" && r.Of != "all" && r.Of != "any":
		return req, errors.New("a request of several subjects has parts, at least one, each with its entries and perhaps a cost, and of is all or any")
	}
	req = decide.Request{Domain: r.Domain, Any: r.Of == "any"}
	for i, p := range parts {
		entries, err := subject(r.Domain, p.Entries)
		if err != nil && r.Parts != nil {
			err = fmt.Errorf("parts[%d]: %w", i, err)
		}
		if err != nil {
			return req, err
		}
		req.Parts = append(req.Parts, decide.One(r.Domain, entries, p.Cost).Parts...)
	}
	return req, nil
}

// An entry is one entry of a subject. A missing value is the empty value, shared by all callers.
type entry struct {
	Key   string  `json:"key"`
	Value *string `json:"value"`
}

// subject returns the entries of a subject, or an error. An empty value is an error: most likely the calling
// program did not set a variable, and all such callers would share a limit.
func subject(domain string, of []entry) ([]config.Entry, error) {
	s := wire.Subject{Domain: domain, Entries: make([]config.Entry, len(of))}
	for i, e := range of {
		s.Entries[i].Key = e.Key
		if e.Value == nil {
			continue
		}
		if s.Entries[i].Value = *e.Value; strings.TrimSpace(*e.Value) == "" {
			return nil, fmt.Errorf("entry %d: the value of %q is empty or blank, and every caller without one would share a limit; "+
				"set it, or leave the value out to count all callers together", i+1, wire.Clip(e.Key))
		}
	}
	return s.Entries, s.Check()
}

// read reads a request, which may wait if it charges. For an invalid request, or a caller without the right to
// decide in the domain, it writes the answer and returns false.
func (h *Handler) read(w http.ResponseWriter, r *http.Request, charges bool) (req decide.Request, ok bool) {
	body := readAs[request](w, r, "domain and entries")
	if body == nil {
		return req, false
	}
	req, err := body.asks()
	if req.Any && !charges {
		err = errors.New("peek at any part by itself: of is all here")
	}
	if err != nil {
		wire.Fail(w, http.StatusBadRequest, err.Error())
		return req, false
	}
	if body.ID != nil {
		if req.ID = *body.ID; req.ID == "" || len(req.ID) > decide.MaxIDLength {
			wire.Fail(w, http.StatusBadRequest, fmt.Sprintf("the id has %d bytes: it must have 1 to %d", len(req.ID), decide.MaxIDLength))
			return req, false
		}
	}
	if err := h.opts.Access.Check(r.Context(), req.Domain, access.Decide); err != nil {
		access.Fail(w, err)
		return req, false
	}
	if !charges {
		req.ID = ""
		return req, true
	}
	req.Book = h.opts.Access.Caller(r.Context()).May(req.Domain, access.Book)
	if req.Within = time.Duration(body.WaitUpTo); req.Within < 0 || req.Within > h.opts.MaxWait {
		wire.Fail(w, http.StatusBadRequest, fmt.Sprintf("wait_up_to is %v; it can be 0 to %v seconds here (sash serve --max-wait)",
			req.Within.Seconds(), h.opts.MaxWait.Seconds()))
		return req, false
	}
	return req, true
}

// readAs reads the body of a POST; with describes the body for errors. It answers an invalid request and returns nil.
func readAs[T any](w http.ResponseWriter, r *http.Request, with string) *T {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		wire.Fail(w, http.StatusMethodNotAllowed, "method "+r.Method+": POST a request here")
		return nil
	}
	if coding := r.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		wire.Fail(w, http.StatusUnsupportedMediaType, "the body must not be encoded; this one says "+wire.Clip(coding))
		return nil
	}
	given := r.Header.Get("Content-Type")
	kind, _, err := mime.ParseMediaType(cmp.Or(given, "application/json"))
	// curl -d sends every body with the type of a form.
	if err != nil || kind != "application/json" && !strings.HasSuffix(kind, "+json") && kind != "application/x-www-form-urlencoded" {
		wire.Fail(w, http.StatusUnsupportedMediaType, "the body must be application/json; this one says "+wire.Clip(given))
		return nil
	}
	return wire.Read[T](w, r, with)
}
