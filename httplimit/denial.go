package httplimit

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"example.com/sash"
	"example.com/sash/middleware"
)

// The problem types of the RateLimit draft, for RFC 9457.
const (
	ProblemQuotaExceeded   = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	ProblemReducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
)

// A Denial says why a request does not reach the handler.
type Denial struct {
	// Status is 429 for a refusal, 503 if the store failed, 400 if the request has no key, a bad key or a cost
	// above a limit, and 500 if the key function, the cost or the limits are wrong.
	Status int
	// Result is the decision behind a 429, and zero otherwise.
	Result sash.Result
	// Policies are the names of the limits that refused, as in the fields. It is empty except for a 429, and with NoFields.
	Policies []string
	// RetryAfter is how long the client should wait: for a 429 the Result's time, but a second for a limit on
	// requests in flight that does not block; for a 503 between 5 and 10 seconds; otherwise zero. The
	// Retry-After field has it in whole seconds.
	RetryAfter time.Duration
	// Err is why there is no decision. It is nil for 429. Do not show it to clients: it may name the store.
	Err error
}

type problem struct {
	Type     string   `json:"type"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Detail   string   `json:"detail,omitempty"`
	Violated []string `json:"violated-policies,omitempty"`
}

// Write answers with application/problem+json. The answer contains no keys, and only the errors that the client
// can act on.
func (d Denial) Write(w http.ResponseWriter) {
	p := problem{Type: "about:blank", Title: http.StatusText(d.Status), Status: d.Status, Violated: d.Policies}
	switch {
	case d.Status == http.StatusTooManyRequests:
		p.Type, p.Title = ProblemQuotaExceeded, "The request exceeds a quota"
		if d.RetryAfter <= 0 {
			break // waiting does not help
		}
		p.Detail = "Send it again in " + inSeconds(d.RetryAfter) + "."
		if d.Result.Blocked {
			p.Detail = "There were too many refused requests. " + p.Detail
		}
	case d.Status == http.StatusServiceUnavailable:
		p.Type, p.Title = ProblemReducedCapacity, "The service cannot take the request at the moment"
		p.Detail = "Send it again in " + inSeconds(d.RetryAfter) + "."
	case errors.Is(d.Err, sash.ErrCostAboveLimit):
		p.Detail = "The request costs more than a quota ever allows. Make it smaller; waiting does not help."
	case errors.Is(d.Err, ErrBadKey):
		p.Detail = "The request identifies its caller more than once, or in a form that is not valid."
	case errors.Is(d.Err, ErrNoKey):
		p.Detail = "The request does not identify its caller."
	}
	body, _ := json.Marshal(p) // a struct of strings and a number always marshals
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(d.Status)
	_, _ = w.Write(body) // a client that does not read it is denied anyway
}

func inSeconds(d time.Duration) string {
	if s := wholeSeconds(d); s != 1 {
		return strconv.FormatInt(s, 10) + " seconds"
	}
	return "1 second"
}

// wholeSeconds rounds up, so that a client waits long enough.
func wholeSeconds(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d-1)/time.Second) + 1
}

func setRetryAfter(h http.Header, d time.Duration) {
	h.Set("Retry-After", strconv.FormatInt(max(1, wholeSeconds(d)), 10))
}

// statusClientClosed is the status in access logs after the client closed the request. No client receives it.
const statusClientClosed = 499

func (o *Options) fail(w http.ResponseWriter, r *http.Request, err error, next http.Handler) {
	if errors.Is(r.Context().Err(), context.Canceled) {
		w.WriteHeader(statusClientClosed)
		return
	}
	failure := middleware.FailureOf(err)
	_, ofFunc := errors.AsType[*middleware.FuncError](err)
	if failure == middleware.Fault && errors.Is(err, context.DeadlineExceeded) && !ofFunc {
		failure, err = middleware.StoreFailed, &sash.StoreError{Err: err} // a deadline of the server: the client may still be there
	}
	switch failure {
	case middleware.NoKey, middleware.BadKey, middleware.TooCostly:
		o.Denied(w, r, Denial{Status: http.StatusBadRequest, Err: err})
		return
	}
	o.OnError(r, err)
	switch {
	case failure != middleware.StoreFailed:
		o.Denied(w, r, Denial{Status: http.StatusInternalServerError, Err: err})
	case o.FailOpen:
		next.ServeHTTP(w, r)
	default:
		retry := middleware.RetryAfter()
		setRetryAfter(w.Header(), retry)
		o.Denied(w, r, Denial{Status: http.StatusServiceUnavailable, RetryAfter: retry, Err: err})
	}
}

func (o *Options) refuse(w http.ResponseWriter, r *http.Request, res sash.Result, quotas []quota) {
	d := Denial{Status: http.StatusTooManyRequests, Result: res}
	for _, q := range quotas {
		d.RetryAfter = max(d.RetryAfter, q.retry)
		if !q.refused || o.Dialect == NoFields {
			continue
		}
		if q.layer != "" {
			q.name = q.layer + ":" + q.name
		}
		d.Policies = append(d.Policies, q.name)
	}
	o.Dialect.write(w.Header(), quotas, res.At)
	setRetryAfter(w.Header(), d.RetryAfter)
	o.Denied(w, r, d)
}
