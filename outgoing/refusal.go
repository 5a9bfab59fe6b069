package outgoing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
)

// A pause is the cool-down that a response asks for, because the API refused the request or has nothing left.
type pause struct {
	refused bool
	full    bool          // a window of the API may be full, and not the quota of a day or an account
	account bool          // for all buckets of the account
	length  time.Duration // zero for none
	guessed bool          // the response gives no time, so the cool-down grows while refusals repeat
}

// shortestCoolDown keeps a Retry-After of zero from turning refusals into a busy loop.
const shortestCoolDown = 100 * time.Millisecond

func pauseOf(call Call, res *http.Response, quotas []quota, now time.Time) pause {
	var exhausted, known, refused, guessed bool
	var reset time.Duration
	for _, q := range quotas {
		if q.hasRemaining && q.remaining == 0 && q.unit != unitConcurrent {
			exhausted, known, reset = true, known || q.hasReset, max(reset, q.reset)
		}
	}
	after, said := retryAfter(res.Header, now)
	means := TooFast
	switch also := slices.Contains(call.Profile.AlsoRefused, res.StatusCode); {
	case also || res.StatusCode == http.StatusTooManyRequests:
		means, refused = call.Profile.signOf(res)
		refused = refused || said || exhausted || res.StatusCode == http.StatusTooManyRequests
	case res.StatusCode == http.StatusServiceUnavailable:
		refused = said
	}
	switch {
	case !refused && exhausted && !known:
		return pause{length: call.Profile.coolDown()}
	case !refused:
		return pause{length: reset}
	case said:
		reset = after
	case reset > 0:
	case means == UsedUp:
		reset = call.Profile.untilReset(dateOf(res.Header, now))
	default:
		reset, guessed = call.Profile.coolDown(), true
	}
	guessed = guessed || reset < shortestCoolDown
	full := means == TooFast && res.StatusCode != http.StatusServiceUnavailable
	return pause{refused: true, full: full, account: means == Everywhere, length: max(reset, shortestCoolDown), guessed: guessed}
}

func (p *Profile) untilReset(now time.Time) time.Duration {
	if p.Resets == 0 {
		return max(time.Hour, p.coolDown())
	}
	period := driver.Limit{Period: p.Resets, Zone: cmp.Or(p.Zone, time.UTC)}
	_, end := period.Bounds(now.UnixMicro())
	return time.UnixMicro(end).Sub(now)
}

// A CoolDownError means that a request was not sent: the API has asked its callers to stop, or has less left
// than the request costs. It is [sash.ErrLimited]. An http.Client wraps it in a *url.Error: use errors.As.
type CoolDownError struct {
	// Key is the bucket or the account, see [Call].
	Key string
	// RetryAfter is the time until the bucket can be used again.
	RetryAfter time.Duration
	// Cause is nil, or why the call did not wait: an error that is context.DeadlineExceeded, [ErrMaxWait] or [ErrCredentials].
	Cause error
}

// Error names the bucket and the retry time.
func (e *CoolDownError) Error() string {
	s := fmt.Sprintf("outgoing: %s is cooling down, as its API requires; retry after %v", e.Key, e.RetryAfter.Round(time.Millisecond))
	switch {
	case errors.Is(e.Cause, context.DeadlineExceeded):
		s += " (past the deadline)"
	case e.Cause != nil:
		s += " (" + e.Cause.Error() + ")"
	}
	return s
}

// Is reports that every CoolDownError is sash.ErrLimited.
func (e *CoolDownError) Is(target error) bool { return target == sash.ErrLimited }

// Unwrap returns the cause.
func (e *CoolDownError) Unwrap() error { return e.Cause }

// ErrMaxWait is the cause of a refusal whose wait would exceed [Options].MaxWait.
var ErrMaxWait = errors.New("outgoing: the wait is longer than MaxWait")

// ErrCredentials is the cause of a refusal when the API has refused all credentials of a call's [Pool]. The
// error's RetryAfter is the time until one of them is tried again.
var ErrCredentials = errors.New("outgoing: the API has refused all credentials of the pool, with 401 or 403")

// Retries says which responses are retried: 429, its equivalents in the profile, and 503. The transport retries GET,
// HEAD, OPTIONS, TRACE, PUT and DELETE, and other methods with an Idempotency-Key field, if GetBody returns the body.
// Each retry is charged like the first attempt and waits for room, under Options.Refuse for at most MaxRetryAfter. If
// the context's deadline leaves no time for a retry, the transport returns the response.
type Retries struct {
	// Most is the most retries of one request. Zero is none. Retry n = 1, 2, ... waits for the response's
	// Retry-After plus a random part of half a second times 2^(n-1), 30 s at most.
	Most int
	// MaxRetryAfter is the longest Retry-After or reset to wait for. A response with a longer one is returned. Zero is a minute.
	MaxRetryAfter time.Duration
}

// These are the delays of retries, and the budget: a few free retries, and a part of one for each request. So
// an API that refuses everything gets a tenth more requests, not Most times more.
const (
	retryBase     = 500 * time.Millisecond
	retryMost     = 30 * time.Second
	retriesEarned = 0.1
	freeRetries   = 10
)

// retry reports whether and after what delay to retry. A retry takes one from the budget.
func (t *Transport) retry(req *http.Request, res *http.Response, wanted pause, attempt int) (time.Duration, bool) {
	r := &t.opts.Retries
	if attempt >= r.Most || !repeatable(req) {
		return 0, false
	}
	if !wanted.refused && res.StatusCode != http.StatusServiceUnavailable || wanted.length > r.MaxRetryAfter {
		return 0, false
	}
	// The backoff is random over its whole range, so that requests refused together are not retried together.
	backoff := rand.N(min(retryBase<<min(attempt, 10), retryMost) + 1)
	delay := wanted.length + backoff
	if deadline, ok := req.Context().Deadline(); ok && time.Until(deadline) <= delay {
		return 0, false
	}
	return delay, t.budget.add(-1)
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

// rewound returns a copy of the request with its body at the start. A transport must not change the request itself.
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

// A budget keeps retries in proportion to requests.
type budget struct {
	mu   sync.Mutex
	left float64 // guarded by mu
}

// add adds retries, or takes them if the number is negative. It reports whether there were enough.
func (b *budget) add(retries float64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left+retries < 0 {
		return false
	}
	b.left = min(b.left+retries, freeRetries)
	return true
}
