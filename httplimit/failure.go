package httplimit

import (
	"context"
	"errors"
	"net/http"

	"example.com/sash"
)

// Unavailable says what happens to requests while the store fails to answer.
type Unavailable uint8

// The policies for a store that fails.
const (
	// FailClosed answers 503 with Retry-After. It is the default because a limit is there to protect
	// something, and a failing store is often one that has too much to do already: who wants the limits
	// to vanish just then should say so.
	FailClosed Unavailable = iota
	// FailOpen lets the request pass, without fields. There is no limit at all while the store fails.
	// It suits limits that are a courtesy rather than a protection, and is an error beside a layer of
	// Failures. Watch Options.OnError.
	FailOpen
)

// statusClientClosed is what access logs know as "the client closed the request"; nobody receives it.
const statusClientClosed = 499

// early handles what is decided without a limit.
func (o *Options) early(w http.ResponseWriter, r *http.Request, next http.Handler) (done bool) {
	switch {
	case o.Block != nil && o.Block(r):
		o.Denied(w, r, Denial{Status: http.StatusForbidden})
	case o.Exempt != nil && o.Exempt(r):
		next.ServeHTTP(w, r)
	default:
		return false
	}
	return true
}

// fail answers a request for which there is no decision.
func (o *Options) fail(w http.ResponseWriter, r *http.Request, err error, next http.Handler) {
	switch gone := r.Context().Err(); {
	case errors.Is(gone, context.Canceled):
		w.WriteHeader(statusClientClosed)
	case gone != nil:
		// A deadline that the server set; the client may still be there. The handler would have no time.
		o.unavailable(w, r, err)
	case errors.Is(err, sash.ErrUnavailable):
		o.OnError(r, err)
		if o.OnUnavailable == FailOpen {
			next.ServeHTTP(w, r)
			return
		}
		o.unavailable(w, r, err)
	case errors.Is(err, ErrNoKey), errors.Is(err, sash.ErrCostAboveLimit):
		o.Denied(w, r, Denial{Status: http.StatusBadRequest, Err: err})
	default:
		o.OnError(r, err)
		o.Denied(w, r, Denial{Status: http.StatusInternalServerError, Err: err})
	}
}

func (o *Options) unavailable(w http.ResponseWriter, r *http.Request, err error) {
	setRetryAfter(w.Header(), o.UnavailableRetry)
	o.Denied(w, r, Denial{Status: http.StatusServiceUnavailable, RetryAfter: o.UnavailableRetry, Err: err})
}

// refuse answers a request for which a limit has no room.
func (o *Options) refuse(w http.ResponseWriter, r *http.Request, res sash.Result, quotas []quota) {
	d := Denial{Status: http.StatusTooManyRequests, Result: res}
	for _, q := range quotas {
		d.RetryAfter = max(d.RetryAfter, q.retry)
		if q.refused {
			d.Policies = append(d.Policies, q.name)
		}
	}
	o.Dialect.write(w.Header(), quotas, o.PartitionKey, verdict{retryAfter: d.RetryAfter, at: res.At})
	setRetryAfter(w.Header(), d.RetryAfter)
	o.Denied(w, r, d)
}
