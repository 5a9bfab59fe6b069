package outgoing

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"example.com/sash"
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
	zone := cmp.Or(p.Zone, time.UTC)
	local := now.In(zone)
	year, month, day := local.Date()
	switch p.Resets {
	case sash.CalendarHour:
		return local.Truncate(time.Hour).Add(time.Hour).Sub(now)
	case sash.CalendarDay:
		return time.Date(year, month, day+1, 0, 0, 0, 0, zone).Sub(now)
	case sash.CalendarMonth:
		return time.Date(year, month+1, 1, 0, 0, 0, 0, zone).Sub(now)
	}
	return max(time.Hour, p.coolDown())
}
