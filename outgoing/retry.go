package outgoing

import (
	"cmp"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// Retries says which responses are retried: 429, its equivalents in the profile, and 503, for requests that may
// be repeated. Those are GET, HEAD, OPTIONS, TRACE, PUT and DELETE, and others with an Idempotency-Key field,
// provided that GetBody returns their body, if any. Each retry is charged like the first attempt, and waits for
// room: for at most MaxRetryAfter under Options.Refuse. When there is no time for a retry before the context's
// deadline, the response is returned as it is.
type Retries struct {
	// Most is the most retries of one request. Zero is none. Before retry n = 1, 2, ... there is a delay of a random
	// part of half a second times 2^(n-1), 30 s at most, after the response's Retry-After.
	Most int
	// MaxRetryAfter is the longest Retry-After, or reset of an exhausted quota, to wait for; a response
	// with a longer one is returned. Zero is a minute.
	MaxRetryAfter time.Duration
}

// The delays of retries, and how many there are for each request over time, after the first few: an API that refuses
// everything gets a tenth more requests, not Most times more.
const (
	retryBase     = 500 * time.Millisecond
	retryMost     = 30 * time.Second
	retriesEarned = 0.1
	freeRetries   = 10
)

func (r *Retries) complete() error {
	if r.Most < 0 || r.MaxRetryAfter < 0 {
		return errors.New("outgoing: the numbers of Retries must not be negative")
	}
	r.MaxRetryAfter = cmp.Or(r.MaxRetryAfter, time.Minute)
	return nil
}

// retry reports whether to retry after a response, and after how long. It takes from the budget.
func (t *Transport) retry(req *http.Request, res *http.Response, wanted pause, attempt int) (time.Duration, bool) {
	r := &t.opts.Retries
	if attempt >= r.Most || !repeatable(req) {
		return 0, false
	}
	if !wanted.refused && res.StatusCode != http.StatusServiceUnavailable || wanted.length > r.MaxRetryAfter {
		return 0, false
	}
	delay := wanted.length + backoff(attempt)
	if deadline, ok := req.Context().Deadline(); ok && time.Until(deadline) <= delay {
		return 0, false
	}
	return delay, t.budget.add(-1)
}

// backoff is random over its whole range, so that requests refused together are not retried together.
func backoff(attempt int) time.Duration {
	most := min(retryBase<<min(attempt, 10), retryMost)
	return time.Duration(rand.Int64N(int64(most) + 1))
}

func repeatable(req *http.Request) bool {
	if !resendable(req) {
		return false
	}
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return req.Header.Get("Idempotency-Key") != ""
}

// rewound returns the request with its body from the start. A transport must not change the request itself.
func rewound(req *http.Request) (*http.Request, error) {
	again := req.Clone(req.Context())
	if req.GetBody == nil {
		return again, nil
	}
	body, err := req.GetBody()
	if err != nil {
		return nil, err
	}
	again.Body = body
	return again, nil
}

// discard reads the rest of a short body, so that its connection can be reused.
func discard(body io.ReadCloser) {
	_, _ = io.CopyN(io.Discard, body, 64<<10)
	_ = body.Close()
}

// A budget keeps retries in proportion to requests.
type budget struct {
	mu   sync.Mutex
	left float64 // guarded by mu
}

// add adds retries, or takes them if they are negative, and reports whether there are as many.
func (b *budget) add(retries float64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left+retries < 0 {
		return false
	}
	b.left = min(b.left+retries, freeRetries)
	return true
}
