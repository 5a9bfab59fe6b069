package httplimit

import (
	"context"
	"errors"
	"net/http"
	"time"

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
	// It suits limits that are a courtesy rather than a protection. Watch Options.OnError.
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

// admit hands an admitted request on, with the fields.
func (o *Options) admit(w http.ResponseWriter, r *http.Request, res sash.Result, quotas []quota, next http.Handler) {
	o.Dialect.write(w.Header(), quotas, o.PartitionKey, verdict{allowed: true, at: res.At})
	next.ServeHTTP(w, r)
}

// ask runs one decision within the time that a decision may take.
func (o *Options) ask(r *http.Request, decide func(context.Context) (sash.Result, error)) (sash.Result, error) {
	ctx := r.Context()
	if o.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.Timeout)
		defer cancel()
	}
	res, err := decide(ctx)
	if err != nil && ctx.Err() != nil {
		err = &sash.StoreError{Err: err} // fail looks first whether the request itself has ended
	}
	return res, err
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
func (o *Options) refuse(w http.ResponseWriter, r *http.Request, res sash.Result, retry time.Duration, quotas []quota) {
	d := Denial{Status: http.StatusTooManyRequests, Result: res, RetryAfter: retry}
	for _, q := range quotas {
		if q.refused {
			d.Policies = append(d.Policies, q.name)
		}
	}
	o.Dialect.write(w.Header(), quotas, o.PartitionKey, verdict{retryAfter: retry, at: res.At})
	setRetryAfter(w.Header(), retry)
	o.Denied(w, r, d)
}
