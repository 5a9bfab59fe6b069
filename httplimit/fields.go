package httplimit

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"example.com/sash"
)

// A Dialect is how an answer tells what is left. The fields are an Internet-Draft and have changed with
// its versions; the older ones are for clients that read them already.
//
// All times are rounded up to whole seconds. For a sliding window, the time that goes with "r units
// remaining" is the one in which no more than r should be used: the longer of the time to the next
// release and r's part of the window. It is not when everything is free again, because a window that
// slides has no such moment for everybody. On a refusal it is never beyond Retry-After.
//
// Draft11 lists every limit. The others have room for one: that which refused and takes longest, or else
// that with the smallest part of its units left; after a refusal their reset is Retry-After.
//
// A calendar limit's window is the length of the period it is in: 86400 for most days, 2419200 to
// 2678400 for a month; its time runs to the end of the period.
//
// A limit on requests in flight has no time that goes with it. Draft11 tells it with
// qu="concurrent-requests" and without w and t. The older dialects have no word for it: clients would take
// it for a rate. They leave it out, and where it alone refused they say nothing but Retry-After.
//
// Where two middlewares are around one handler, the inner one adds its limits to the lists of Draft11
// for a request that it admits. Otherwise it replaces the fields of the outer one.
type Dialect uint8

// The dialects.
const (
	// Draft11 is RateLimit and RateLimit-Policy of draft-ietf-httpapi-ratelimit-headers-11: Lists of
	// RFC 9651, with r and t, and q, w and perhaps pk.
	Draft11 Dialect = iota
	// Draft07 is RateLimit: limit=…, remaining=…, reset=… of draft 07, with RateLimit-Policy: 100;w=60.
	Draft07
	// Draft06 is RateLimit-Limit, RateLimit-Remaining and RateLimit-Reset of draft 06, the reset in
	// seconds from now, with RateLimit-Policy: 100;w=60.
	Draft06
	// LegacyUnix is X-RateLimit-Limit, -Remaining and -Reset, the reset in Unix seconds on the store's
	// clock.
	LegacyUnix
	// LegacyRFC3339 is LegacyUnix with the reset as a date and time in UTC.
	LegacyRFC3339
	// NoFields sends none, and its answers do not name the limits that refused. Retry-After is sent with
	// every dialect.
	NoFields
)

var dialectNames = [...]string{"draft-11", "draft-07", "draft-06", "x-ratelimit-unix", "x-ratelimit-rfc3339", "none"}

// String returns the dialect's name, such as "draft-11".
func (d Dialect) String() string {
	if int(d) < len(dialectNames) {
		return dialectNames[d]
	}
	return fmt.Sprintf("Dialect(%d)", uint8(d))
}

// Set sets the fields for a decision that no middleware made, such as one that a proxy asked for. The limits
// are those of its [sash.Result], or of several results; one of them that is Refused makes it a refusal. At
// is the store's clock, by which the periods of calendar limits are found. No limits set nothing.
func (d Dialect) Set(h http.Header, limits []sash.LimitResult, at time.Time) {
	quotas := make([]quota, len(limits))
	v := verdict{allowed: true, at: at}
	for i, l := range limits {
		quotas[i] = newQuota(l, &Layer{}, at)
		if l.Refused {
			v.allowed, v.retryAfter = false, max(v.retryAfter, l.RetryAfter)
		}
	}
	d.write(h, quotas, nil, v)
}

// A verdict is what the fields need to know of a decision besides its limits.
type verdict struct {
	allowed    bool
	retryAfter time.Duration // of a refusal
	at         time.Time     // on the store's clock
}

// write sets the fields of the dialect for a decision.
func (d Dialect) write(h http.Header, quotas []quota, hmacKey []byte, v verdict) {
	if d == NoFields || len(quotas) == 0 {
		return
	}
	if d == Draft11 {
		writeDraft11(h, quotas, hmacKey, v)
		return
	}
	shown := slices.DeleteFunc(slices.Clone(quotas), func(q quota) bool { return q.inFlight })
	if len(shown) == 0 || !v.allowed && !slices.ContainsFunc(shown, func(q quota) bool { return q.refused }) {
		return
	}
	q := tightest(shown)
	reset := q.effective
	if !v.allowed {
		reset = v.retryAfter
	}
	limit, remaining := strconv.FormatInt(q.units, 10), strconv.FormatInt(q.remaining, 10)
	switch d {
	case Draft07:
		writeDraft07(h, quotas, q, wholeSeconds(reset))
		return
	case Draft06:
		h.Set("RateLimit-Limit", limit)
		h.Set("RateLimit-Remaining", remaining)
		h.Set("RateLimit-Reset", strconv.FormatInt(wholeSeconds(reset), 10))
		writeNamelessPolicies(h, quotas)
		return
	}
	h.Set("X-RateLimit-Limit", limit)
	h.Set("X-RateLimit-Remaining", remaining)
	at := v.at.Add(reset)
	if whole := at.Truncate(time.Second); whole.Before(at) {
		at = whole.Add(time.Second)
	}
	if d == LegacyUnix {
		h.Set("X-RateLimit-Reset", strconv.FormatInt(at.Unix(), 10))
	} else {
		h.Set("X-RateLimit-Reset", at.UTC().Format(time.RFC3339))
	}
}

// tightest returns the limit that a dialect with room for one shows.
func tightest(quotas []quota) quota {
	best := quotas[0]
	for _, q := range quotas[1:] {
		switch {
		case q.refused != best.refused:
			if q.refused {
				best = q
			}
		case q.refused:
			if q.retry > best.retry {
				best = q
			}
		case float64(q.remaining)*float64(best.units) < float64(best.remaining)*float64(q.units):
			best = q
		}
	}
	return best
}
