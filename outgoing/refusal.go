package outgoing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
)

// A pause is the cool-down that a response asks for, because the request was refused or because nothing is
// left.
type pause struct {
	refused bool
	full    bool          // because a window of the API is full, and not the quota of a day or an account
	account bool          // for all buckets of the account
	length  time.Duration // zero when it asks for none
	guessed bool          // the response gives no time, so the cool-down grows while refusals repeat
}

// shortestCoolDown keeps a Retry-After of zero from turning refusals into a busy loop.
const shortestCoolDown = 100 * time.Millisecond

// pauseOf returns the cool-down that a response asks for.
func pauseOf(call Call, res *http.Response, quotas []quota, now time.Time) pause {
	exhausted, known, reset := false, false, time.Duration(0)
	for _, q := range quotas {
		if q.hasRemaining && q.remaining == 0 && q.unit != unitConcurrent {
			exhausted, known, reset = true, known || q.hasReset, max(reset, q.reset)
		}
	}
	after, said := retryAfter(res.Header, now)
	means, refused, guessed := TooFast, false, false
	switch {
	case res.StatusCode == http.StatusTooManyRequests:
		means, _ = call.Profile.signOf(res)
		refused = true
	case slices.Contains(call.Profile.AlsoRefused, res.StatusCode):
		var signed bool
		means, signed = call.Profile.signOf(res)
		refused = signed || said || exhausted
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

// untilReset returns the time until the next reset of the quotas.
func (p *Profile) untilReset(now time.Time) time.Duration {
	if p.Resets == 0 {
		return max(time.Hour, p.coolDown())
	}
	period := driver.Limit{Period: p.Resets, Zone: cmp.Or(p.Zone, time.UTC)}
	_, end := period.Bounds(now.UnixMicro())
	return time.UnixMicro(end).Sub(now)
}

// A CoolDownError means that a request was not sent, because the API refused a call of this or another process
// for a while, or because less is left than the request costs. It is [sash.ErrLimited]. Like every error of a
// RoundTripper it arrives inside a *url.Error: use errors.As.
type CoolDownError struct {
	// Key is the bucket or the account, see [Call].
	Key string
	// RetryAfter is the time until the bucket can be used again.
	RetryAfter time.Duration
	// Cause is nil, or why the call did not wait: an error that is context.DeadlineExceeded, [ErrMaxWait] or
	// [ErrCredentials].
	Cause error
}

// Error names the bucket and the retry time.
func (e *CoolDownError) Error() string {
	s := fmt.Sprintf("outgoing: %s is cooling down, as its API requires; retry after %v", e.Key, e.RetryAfter.Round(time.Millisecond))
	if e.Cause != nil {
		s += " (" + reason(e.Cause) + ")"
	}
	return s
}

// Is reports that every CoolDownError is sash.ErrLimited.
func (e *CoolDownError) Is(target error) bool { return target == sash.ErrLimited }

// Unwrap returns the cause.
func (e *CoolDownError) Unwrap() error { return e.Cause }

// ErrMaxWait is the cause of a refusal whose wait is longer than [Options].MaxWait.
var ErrMaxWait = errors.New("outgoing: the wait is longer than MaxWait")

// ErrCredentials is the cause of a refusal when the API has refused all credentials of a call's [Pool]. The error's
// RetryAfter is when one of them is tried again.
var ErrCredentials = errors.New("outgoing: the API has refused all credentials of the pool, with 401 or 403")

func reason(cause error) string {
	if errors.Is(cause, context.DeadlineExceeded) {
		return "past the deadline"
	}
	return cause.Error()
}
