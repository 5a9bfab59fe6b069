package httplimit

import (
	"context"
	"errors"
	"net/http"

	"example.com/sash"
	"example.com/sash/middleware"
)

// statusClientClosed is how access logs write "the client closed the request"; no client receives it.
const statusClientClosed = 499

// fail answers a request without a decision.
func (o *Options) fail(w http.ResponseWriter, r *http.Request, err error, next http.Handler) {
	if errors.Is(r.Context().Err(), context.Canceled) {
		w.WriteHeader(statusClientClosed)
		return
	}
	failure := middleware.FailureOf(err)
	var ofFunc *middleware.FuncError
	if failure == middleware.Fault && errors.Is(err, context.DeadlineExceeded) && !errors.As(err, &ofFunc) {
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

// refuse answers a request that a limit has no room for.
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
	o.Dialect.write(w.Header(), quotas, verdict{retryAfter: d.RetryAfter, at: res.At})
	setRetryAfter(w.Header(), d.RetryAfter)
	o.Denied(w, r, d)
}
