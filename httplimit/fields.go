package httplimit

import (
	"cmp"
	"fmt"
	"math/bits"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
)

// A Dialect is the form of the fields that report what is left. The fields are an Internet-Draft and changed with its
// versions. The older forms are for clients that already read them.
//
// All times are rounded up to whole seconds. For a sliding window, the time beside "r units remaining" is the time in
// which a client should use no more than r units: the time to the next release, or r's part of the window if that is
// longer. (At no single moment do all units become free.) On a refusal, this time never exceeds Retry-After.
//
// Draft11 lists every limit. The other dialects report one: the refusing limit with the longest retry time, or else
// the limit with the smallest part of its units left. After a refusal their reset is Retry-After.
//
// A calendar limit's window is the length of its current period: 86400 for most days, 2419200 to 2678400 for a month.
// Its time is the time to the end of the period. For a fixed window, it is the time to the window's end.
//
// A limit on requests in flight has no time. Draft11 writes it with qu="concurrent-requests" and without w and t. The
// older dialects cannot express it: they omit it, and if it alone refused they send only Retry-After.
//
// If two middlewares wrap one handler, the inner one adds its limits to the lists of Draft11 for a request that it
// admits. Otherwise it replaces the fields of the outer one.
type Dialect uint8

// The dialects.
const (
	// Draft11 is RateLimit and RateLimit-Policy of draft-ietf-httpapi-ratelimit-headers-11. Both are Lists of
	// RFC 9651, with r and t, and with q and w.
	Draft11 Dialect = iota
	// Draft07 is RateLimit: limit=…, remaining=…, reset=… of draft 07, with RateLimit-Policy: 100;w=60.
	Draft07
	// Draft06 is RateLimit-Limit, RateLimit-Remaining and RateLimit-Reset of draft 06, with RateLimit-Policy:
	// 100;w=60. The reset is in seconds from now.
	Draft06
	// LegacyUnix is X-RateLimit-Limit, -Remaining and -Reset. The reset is in Unix seconds on the store's
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

// Set sets the fields for a decision that no middleware made, such as one for a proxy. The limits are from one
// or several results. If a limit is Refused, the fields are those of a refusal. At is the time on the store's
// clock, which determines the period of calendar limits. Without limits, Set sets nothing.
func (d Dialect) Set(h http.Header, limits []sash.LimitResult, at time.Time) {
	quotas := make([]quota, len(limits))
	for i := range limits {
		quotas[i] = newQuota(&limits[i], &Layer{}, at)
	}
	d.write(h, quotas, at)
}

// write sets the dialect's fields for a decision that was made at a time of the store's clock.
func (d Dialect) write(h http.Header, quotas []quota, at time.Time) {
	if d == NoFields || len(quotas) == 0 {
		return
	}
	var retry time.Duration
	refused := false
	for i := range quotas {
		retry, refused = max(retry, quotas[i].retry), refused || quotas[i].refused
	}
	if d == Draft11 {
		writeDraft11(h, quotas, refused, wholeSeconds(retry))
		return
	}
	q := tightest(quotas)
	if q == nil || refused && !q.refused {
		return
	}
	reset := q.effective
	if refused {
		reset = retry
	}
	if d == Draft07 {
		var room [128]byte
		b := appendInteger(room[:0], "limit=", q.units)
		b = appendInteger(b, ", remaining=", q.remaining)
		b = appendInteger(b, ", reset=", wholeSeconds(reset))
		h[fieldState] = []string{string(b)}
		writeNamelessPolicies(h, quotas)
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
	at = at.Add(reset + time.Second - 1).Truncate(time.Second) // rounded up
	if d == LegacyUnix {
		h["X-Ratelimit-Reset"] = []string{strconv.FormatInt(at.Unix(), 10)}
	} else {
		h["X-Ratelimit-Reset"] = []string{at.UTC().Format(time.RFC3339)}
	}
}

// tightest returns the limit that a dialect with one limit reports, or nil if it can express none.
func tightest(quotas []quota) (best *quota) {
	for i := range quotas {
		q := &quotas[i]
		switch {
		case q.inFlight:
		case best == nil:
			best = q
		case q.refused && (!best.refused || q.retry > best.retry):
			best = q
		case q.refused || best.refused:
		case float64(q.remaining)*float64(best.units) < float64(best.remaining)*float64(q.units):
			best = q
		}
	}
	return best
}

// A quota is one limit of a decision, as the fields report it.
type quota struct {
	layer     string // the layer's name, which precedes the limit's name and a colon; may be empty
	name      string
	units     int64
	remaining int64
	window    time.Duration // for a calendar limit, the length of the current period
	effective time.Duration // the time in which a client should use no more than remaining; zero in flight
	refused   bool
	retry     time.Duration
	inFlight  bool // units are requests at once, and the window is only the longest hold time
}

func newQuota(l *sash.LimitResult, layer *Layer, at time.Time) quota {
	name, retry := layer.Describe(l)
	q := quota{
		layer:     fieldName(layer.Name),
		name:      fieldName(name),
		units:     l.Limit.Units,
		remaining: min(l.Remaining, l.Limit.Units),
		window:    l.Limit.Window,
		refused:   l.Refused,
		retry:     retry,
		inFlight:  layer.Charge == InFlight,
	}
	now := at.UnixMicro()
	switch {
	case q.inFlight:
	case l.Limit.Period != 0:
		period := driver.Limit{Period: l.Limit.Period, Zone: cmp.Or(l.Limit.Zone, time.UTC)}
		start, end := period.Bounds(now)
		q.window, q.effective = time.Duration(end-start)*time.Microsecond, time.Duration(end-now)*time.Microsecond
	case l.Algorithm == sash.FixedWindow && q.window >= time.Microsecond: // it ends at a multiple of its length
		q.effective = q.window - time.Duration(now%q.window.Microseconds())*time.Microsecond
	default:
		q.effective = max(l.ReleaseAfter, share(q.remaining, q.units, q.window))
	}
	return q
}

// share returns r/q of a window, rounded up. r is at most q.
func share(r, q int64, w time.Duration) time.Duration {
	if r <= 0 {
		return 0 // q may be 0 as well: a limit that admits nothing
	}
	hi, lo := bits.Mul64(uint64(r), uint64(w))
	part, rest := bits.Div64(hi, lo, uint64(q))
	if rest > 0 {
		part++
	}
	return time.Duration(part)
}

// fieldName escapes the bytes of a name that a String of RFC 9651 cannot contain.
func fieldName(name string) string {
	if !strings.ContainsFunc(name, func(c rune) bool { return c < ' ' || c > '~' }) {
		return name
	}
	var b strings.Builder
	for i := range len(name) {
		if c := name[i]; c >= ' ' && c <= '~' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// The names of the fields as canonical Header keys, so that setting them needs no conversion.
const (
	fieldState  = "Ratelimit"
	fieldPolicy = "Ratelimit-Policy"
)

// These functions append structured fields of RFC 9651 to a buffer. A library would build a tree of items for
// each response. TestFieldsParseBack in internal/roundtrip compares the two.

func appendMember(b []byte) []byte {
	if len(b) == 0 {
		return b
	}
	return append(b, ", "...)
}

// appendName appends the name of a limit as a List member of type String.
func appendName(b []byte, q *quota) []byte {
	b = append(appendMember(b), '"')
	if q.layer != "" {
		b = append(appendEscaped(b, q.layer), ':')
	}
	return append(appendEscaped(b, q.name), '"')
}

// appendEscaped appends the characters of a String. fieldName has escaped the bytes that a String cannot contain.
func appendEscaped(b []byte, s string) []byte {
	for i := range len(s) {
		if s[i] == '"' || s[i] == '\\' {
			b = append(b, '\\')
		}
		b = append(b, s[i])
	}
	return b
}

// appendInteger appends a prefix, such as the name of a parameter, and a number.
func appendInteger(b []byte, before string, n int64) []byte {
	return strconv.AppendInt(append(b, before...), n, 10)
}

func writeDraft11(h http.Header, quotas []quota, refused bool, latest int64) {
	var room [2][256]byte // enough for a few limits, without an allocation
	state, policy := room[0][:0], room[1][:0]
	for i := range quotas {
		q := &quotas[i]
		t := wholeSeconds(q.effective)
		if refused {
			t = min(t, latest)
		}
		state = appendInteger(appendName(state, q), ";r=", q.remaining)
		policy = appendInteger(appendName(policy, q), ";q=", q.units)
		if q.inFlight {
			policy = append(policy, `;qu="concurrent-requests"`...)
		} else {
			state = appendInteger(state, ";t=", t)
			policy = appendInteger(policy, ";w=", wholeSeconds(q.window))
		}
	}
	if refused {
		delete(h, fieldState) // an outer middleware's times may exceed our Retry-After
		delete(h, fieldPolicy)
	}
	h[fieldPolicy] = append(h[fieldPolicy], string(policy))
	h[fieldState] = append(h[fieldState], string(state))
}

// writeNamelessPolicies writes RateLimit-Policy as in drafts 06 and 07: the units and window of each limit that
// has a window.
func writeNamelessPolicies(h http.Header, quotas []quota) {
	var room [128]byte
	b := room[:0]
	for i := range quotas {
		if q := &quotas[i]; !q.inFlight {
			b = appendInteger(appendInteger(appendMember(b), "", q.units), ";w=", wholeSeconds(q.window))
		}
	}
	delete(h, fieldPolicy)
	if len(b) > 0 {
		h[fieldPolicy] = []string{string(b)}
	}
}
