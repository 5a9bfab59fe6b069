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
	// FailOpen lets the request pass, without fields. There is no limit at all while the store fails. When
	// it was a deadline of the server that came before the answer, the handler has no time left.
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

// A requestError is an error of a function of the application, such as that for the key. Whatever it wraps, the
// store has not failed, and no policy for that lets the request pass.
type requestError struct{ err error }

func (e *requestError) Error() string { return e.err.Error() }
func (e *requestError) Unwrap() error { return e.err }

// fail answers a request for which there is no decision. A deadline of the server that comes while the store is
// asked is the store's failure as much as Timeout is: the client may still be there.
func (o *Options) fail(w http.ResponseWriter, r *http.Request, err error, next http.Handler) {
	var ofRequest *requestError
	switch isRequest := errors.As(err, &ofRequest); {
	case errors.Is(r.Context().Err(), context.Canceled):
		w.WriteHeader(statusClientClosed)
	case errors.Is(err, ErrNoKey), !isRequest && errors.Is(err, sash.ErrCostAboveLimit):
		o.Denied(w, r, Denial{Status: http.StatusBadRequest, Err: err})
	case !isRequest && errors.Is(err, sash.ErrUnavailable):
		o.OnError(r, err)
		if o.OnUnavailable == FailOpen {
			next.ServeHTTP(w, r)
			return
		}
		o.unavailable(w, r, err)
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
		if q.refused && o.Dialect != NoFields {
			d.Policies = append(d.Policies, q.name)
		}
	}
	o.Dialect.write(w.Header(), quotas, o.PartitionKey, verdict{retryAfter: d.RetryAfter, at: res.At})
	setRetryAfter(w.Header(), d.RetryAfter)
	o.Denied(w, r, d)
}
