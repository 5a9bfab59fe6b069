package httplimit

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"example.com/sash"
	"example.com/sash/middleware"
)

// A Middleware wraps a handler. It is an alias, so that routers accept it as their own type.
type Middleware = func(http.Handler) http.Handler

// Options are the optional settings of a middleware. The zero value is the default. All functions may be
// called concurrently.
type Options struct {
	// Dialect is the form of the fields that report what is left. Zero is Draft11.
	Dialect Dialect
	// Cost returns the units of a request in layers of Requests, at least 1. Nil is 1. A layer can have its own
	// Cost. The answer to a cost above a limit's units is 400: the request can never be admitted.
	Cost func(r *http.Request) int64
	// Outcome distinguishes failures from successes in layers of Failures. Nil is ByStatus.
	Outcome OutcomeFunc
	// FailOpen admits requests without fields while the store fails: nothing is limited then. If a deadline of the
	// server ended the decision, the handler has no time left. FailOpen suits limits that are a courtesy rather than
	// a protection, and is an error together with a layer of Failures. Watch OnError. By default the answer is 503
	// with a random Retry-After of 5 to 10 seconds: a store often fails under load, when limits protect most.
	FailOpen bool
	// Timeout is how long a decision may take, and how long a response waits for the release of a charge. A slower store counts
	// as failed. Zero is a second. A negative Timeout is as long as the request's context allows, and a second for a release.
	Timeout time.Duration
	// Denied answers the requests that do not reach the handler. Retry-After and the dialect's fields are already set. Nil is Denial.Write.
	Denied func(w http.ResponseWriter, r *http.Request, d Denial)
	// OnError receives every error of the store, even if the client does not see it, and errors of wrong keys,
	// costs and limits. It does not receive what any client can cause: refusals, ErrNoKey, ErrBadKey and
	// sash.ErrCostAboveLimit, which Denied receives, and errors of clients that left. The package logs nothing.
	OnError func(r *http.Request, err error)
}

// New returns a middleware that applies the limiter's limits to every key.
//
// Requests with the same store, [sash.Options].Prefix and key count together, even in different middlewares. Without a Prefix, 5
// requests to the API use up a login limit of 5 a minute. Give each limiter its own Prefix, or each [Layer] a Name.
//
// The error names the invalid option. New panics if limiter or key is nil.
func New(limiter *sash.Limiter, key KeyFunc, opts *Options) (Middleware, error) {
	if key == nil {
		panic("httplimit: New needs a key function, such as PeerAddress")
	}
	return NewLayers(limiter, []Layer{{Key: key}}, opts)
}

// NewLayers returns a middleware that checks a request against the limits of every layer that applies to it: see [middleware.NewGate].
// On a Redis Cluster see [sash.KeyTogether]. The error names the invalid layer or option. It panics if limiter is nil.
func NewLayers(limiter *sash.Limiter, layers []Layer, opts *Options) (Middleware, error) {
	if limiter == nil {
		panic("httplimit: a middleware needs a limiter, from sash.New")
	}
	g := &gate{opts: *cmp.Or(opts, &Options{})}
	o := &g.opts
	if o.Dialect > NoFields {
		return nil, fmt.Errorf("httplimit: unknown dialect %v", o.Dialect)
	}
	if o.Denied == nil {
		o.Denied = func(w http.ResponseWriter, _ *http.Request, d Denial) { d.Write(w) }
	}
	if o.Outcome == nil {
		o.Outcome = ByStatus
	}
	if o.OnError == nil {
		o.OnError = func(*http.Request, error) {}
	}
	of := middleware.GateOptions[*http.Request]{Cost: o.Cost, FailOpen: o.FailOpen, Timeout: o.Timeout, OnError: o.OnError}
	var err error
	if g.Gate, err = middleware.NewGate(limiter, layers, of); err != nil {
		return nil, fmt.Errorf("httplimit: %w", err)
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { g.serve(w, r, next) })
	}, nil
}

// A gate decides on requests before a handler, and settles their charges after it.
type gate struct {
	*middleware.Gate[*http.Request]
	opts Options
}

// serve runs the handler and settles the request's charges, even if the handler panics; the panic continues.
func (g *gate) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	d, err := g.Decide(r.Context(), r)
	if err != nil {
		g.opts.fail(w, r, err, next)
		return
	}
	if !d.Limited() {
		next.ServeHTTP(w, r)
		return
	}
	limits := d.Result.Limits()
	quotas := make([]quota, len(limits))
	for i := range limits {
		quotas[i] = newQuota(&limits[i], d.LayerOf(limits, i), d.Result.At)
	}
	if !d.Result.Allowed {
		g.opts.refuse(w, r, d.Result, quotas)
		return
	}
	if d.Held() && errors.Is(r.Context().Err(), context.Canceled) {
		d.Settle(r.Context(), Neutral) // no client is left to serve
		w.WriteHeader(statusClientClosed)
		return
	}
	if d.Result.Source != sash.FromPolicy { // a failure mode counts nothing, so there is nothing to report
		g.opts.Dialect.write(w.Header(), quotas, d.Result.At)
	}
	if !d.Held() {
		next.ServeHTTP(w, r)
		return
	}
	var rec *statusRecorder
	if d.Charges(Failures) {
		rec = &statusRecorder{ResponseWriter: w}
		w = rec
	}
	returned := false
	defer func() {
		outcome := Failed // if the Outcome function panics, the outcome is Failed; a slot is released anyway
		defer func() { d.Settle(r.Context(), outcome) }()
		if rec != nil {
			outcome = g.opts.Outcome(r, rec.final(returned, r.Context().Err()), w.Header())
		}
	}()
	next.ServeHTTP(w, r)
	returned = true
}

// These types are documented in package middleware.
type (
	// A Layer limits requests by one subject.
	Layer = middleware.Layer[*http.Request]
	// A Charge says what a layer counts.
	Charge = middleware.Charge
	// An Outcome is how a request ended.
	Outcome = middleware.Outcome
)

// The charges and outcomes. The fields of a response count an attempt as a failure, whatever its outcome. A connection that a
// handler hijacks is in flight until the handler returns. Retry-After of a layer of InFlight is 1, unless the subject is blocked.
const (
	Requests = middleware.Requests
	Failures = middleware.Failures
	InFlight = middleware.InFlight

	Neutral   = middleware.Neutral
	Failed    = middleware.Failed
	Succeeded = middleware.Succeeded
)

// An OutcomeFunc returns the outcome of a request from the status and the header fields that the handler sent.
// If the handler sent no status, it is 200 after a return and 500 after a panic. For a hijacked connection it
// is 101.
//
// A handler that sent nothing because the request's context had ended has not succeeded. The status is then 499
// if the client hung up, and 503 at a deadline of the server. With ByStatus a hang-up counts as a failure,
// because the handler may have got far enough: an attacker gains nothing by ending an attempt early.
type OutcomeFunc func(r *http.Request, status int, header http.Header) Outcome

// ByStatus is an [OutcomeFunc] for APIs. 2xx is Succeeded. 4xx except 429 is Failed, including 499 for a client
// that hung up. All other statuses are Neutral. Do not use it for a login page that answers a bad password with
// 200 or a redirect.
func ByStatus(_ *http.Request, status int, _ http.Header) Outcome {
	switch {
	case status >= 200 && status < 300:
		return Succeeded
	case status >= 400 && status < 500 && status != http.StatusTooManyRequests:
		return Failed
	}
	return Neutral
}

// A statusRecorder records the status that a handler sends. It has Flush and Hijack for handlers that assert
// these directly. http.ResponseController reaches all features of the original.
type statusRecorder struct {
	http.ResponseWriter
	status int
}

// WriteHeader records the first final status; informational ones may come before it.
func (s *statusRecorder) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols {
		s.sent(status)
	}
	s.ResponseWriter.WriteHeader(status)
}

// Write makes the status 200 if none was sent before, as net/http does.
func (s *statusRecorder) Write(p []byte) (int, error) {
	s.sent(http.StatusOK)
	return s.ResponseWriter.Write(p)
}

// FlushError sends the header, as net/http does. If the wrapped writer cannot flush, a status can still follow.
func (s *statusRecorder) FlushError() error {
	err := http.NewResponseController(s.ResponseWriter).Flush()
	if !errors.Is(err, http.ErrNotSupported) {
		s.sent(http.StatusOK)
	}
	return err
}

// Flush is FlushError for handlers that want an http.Flusher.
func (s *statusRecorder) Flush() { _ = s.FlushError() }

// Hijack hands the connection over. The recorder does not see what is sent on the connection.
func (s *statusRecorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(s.ResponseWriter).Hijack()
	if err == nil {
		s.sent(http.StatusSwitchingProtocols)
	}
	return conn, rw, err
}

// Unwrap lets http.ResponseController set deadlines.
func (s *statusRecorder) Unwrap() http.ResponseWriter { return s.ResponseWriter }

func (s *statusRecorder) sent(status int) { s.status = cmp.Or(s.status, status) }

// final returns the status of a request. gone is the error of the request's context. A handler that returned
// without a status has sent 200 if the client was there. A handler that panicked has failed.
func (s *statusRecorder) final(returned bool, gone error) int {
	switch {
	case s.status != 0:
		return s.status
	case !returned:
		return http.StatusInternalServerError
	case errors.Is(gone, context.DeadlineExceeded):
		return http.StatusServiceUnavailable
	case gone != nil:
		return statusClientClosed
	}
	return http.StatusOK
}
