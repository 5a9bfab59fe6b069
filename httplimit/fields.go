package httplimit

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.com/sash"
)

// A Dialect is the form of the fields that report what is left. The fields are an Internet-Draft and changed
// with its versions; the older forms are for clients that read them already.
//
// All times are rounded up to whole seconds. For a sliding window, the time beside "r units remaining" is
// the time in which a client should use no more than r: the longer of the time to the next release and r's
// part of the window. It is not the time until all units are free, because a sliding window has no such
// moment for all clients. On a refusal it is never beyond Retry-After.
//
// Draft11 lists every limit. The others have room for one: the refusing limit with the longest retry time, or
// else the limit with the smallest part of its units left. After a refusal their reset is Retry-After.
//
// A calendar limit's window is the length of its current period: 86400 for most days, 2419200 to 2678400
// for a month. Its time runs to the end of the period, and that of a fixed window to the window's end.
//
// A limit on requests in flight has no time. Draft11 writes it with qu="concurrent-requests" and without w
// and t. The older dialects cannot express it, and clients would take it for a rate: they omit it, and where
// it alone refused they send only Retry-After.
//
// Where two middlewares are around one handler, the inner one adds its limits to the lists of Draft11
// for a request that it admits. Otherwise it replaces the fields of the outer one.
type Dialect uint8

// The dialects.
const (
	// Draft11 is RateLimit and RateLimit-Policy of draft-ietf-httpapi-ratelimit-headers-11: Lists of
	// RFC 9651, with r and t, and q and w.
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
	// NoFields sends no fields, and its problem documents do not name the limits that refused. Every dialect
	// sends Retry-After.
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

// UnmarshalText reads the name of a dialect.
func (d *Dialect) UnmarshalText(text []byte) error {
	i := slices.Index(dialectNames[:], string(text))
	if i < 0 {
		return fmt.Errorf("httplimit: unknown dialect %.40q; there are %s", text, strings.Join(dialectNames[:], ", "))
	}
	*d = Dialect(i)
	return nil
}

// Set sets the fields for a decision that no middleware made, such as one for a proxy. The limits are those of
// its [sash.Result], or of several results; if one of them is Refused, the fields are those of a refusal. At
// is the store's clock, which places calendar limits in their period. Without limits Set sets nothing.
func (d Dialect) Set(h http.Header, limits []sash.LimitResult, at time.Time) {
	quotas := make([]quota, len(limits))
	v := verdict{allowed: true, at: at}
	for i := range limits {
		l := &limits[i]
		quotas[i] = newQuota(l, &Layer{}, at)
		if l.Refused {
			v.allowed, v.retryAfter = false, max(v.retryAfter, l.RetryAfter)
		}
	}
	d.write(h, quotas, v)
}

// A verdict is the part of a decision that the fields report besides its limits.
type verdict struct {
	allowed    bool
	retryAfter time.Duration // of a refusal
	at         time.Time     // on the store's clock
}

// write sets the fields of the dialect for a decision.
func (d Dialect) write(h http.Header, quotas []quota, v verdict) {
	if d == NoFields || len(quotas) == 0 {
		return
	}
	if d == Draft11 {
		writeDraft11(h, quotas, v)
		return
	}
	q := tightest(quotas)
	if q == nil || !v.allowed && !q.refused {
		return
	}
	reset := q.effective
	if !v.allowed {
		reset = v.retryAfter
	}
	if d == Draft07 {
		writeDraft07(h, quotas, q, wholeSeconds(reset))
		return
	}
	limit, remaining := strconv.FormatInt(q.units, 10), strconv.FormatInt(q.remaining, 10)
	if d == Draft06 {
		h["Ratelimit-Limit"] = []string{limit}
		h["Ratelimit-Remaining"] = []string{remaining}
		h["Ratelimit-Reset"] = []string{strconv.FormatInt(wholeSeconds(reset), 10)}
		writeNamelessPolicies(h, quotas)
		return
	}
	h["X-Ratelimit-Limit"] = []string{limit}
	h["X-Ratelimit-Remaining"] = []string{remaining}
	at := v.at.Add(reset)
	if whole := at.Truncate(time.Second); whole.Before(at) {
		at = whole.Add(time.Second)
	}
	if d == LegacyUnix {
		h["X-Ratelimit-Reset"] = []string{strconv.FormatInt(at.Unix(), 10)}
	} else {
		h["X-Ratelimit-Reset"] = []string{at.UTC().Format(time.RFC3339)}
	}
}

// tightest returns the limit for a dialect with room for one, or nil if it can express none.
func tightest(quotas []quota) (best *quota) {
	for i := range quotas {
		q := &quotas[i]
		switch {
		case q.inFlight:
		case best == nil:
			best = q
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
