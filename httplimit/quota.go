package httplimit

import (
	"cmp"
	"fmt"
	"math/bits"
	"net/http"
	"strconv"
	"strings"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
)

// A quota is one limit of a decision, as the fields report it.
type quota struct {
	layer     string // the name of its layer, which comes before its own name with a colon; may be empty
	name      string
	units     int64
	remaining int64
	window    time.Duration // for a calendar limit, the length of the current period
	effective time.Duration // the time in which a client should use no more than remaining; zero in flight
	refused   bool
	retry     time.Duration
	inFlight  bool // units are requests at once, and the window is only the longest hold time
}

// quotasOf returns the limits of a decision, named after their layers.
func quotasOf(d *decision) []quota {
	limits := d.Result.Limits()
	quotas := make([]quota, len(limits))
	for i := range limits {
		quotas[i] = newQuota(&limits[i], d.LayerOf(limits, i), d.Result.At)
	}
	return quotas
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
	if q.inFlight {
		return q
	}
	if l.Limit.Period != 0 {
		zone := cmp.Or(l.Limit.Zone, time.UTC)
		now := at.UnixMicro()
		period := driver.Limit{Period: l.Limit.Period, Zone: zone}
		start, end := period.Bounds(now)
		q.window = time.Duration(end-start) * time.Microsecond
		q.effective = time.Duration(end-now) * time.Microsecond
		return q
	}
	if l.Algorithm == sash.FixedWindow && q.window >= time.Microsecond { // it ends at a multiple of its length
		q.effective = q.window - time.Duration(at.UnixMicro()%q.window.Microseconds())*time.Microsecond
		return q
	}
	q.effective = max(l.ReleaseAfter, share(q.remaining, q.units, q.window))
	return q
}

// share returns r/q of a window, rounded up; r is at most q.
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

// fieldName escapes the bytes of a name that a String of RFC 9651 cannot have.
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

// The names of the fields as the keys of a Header, so that setting them does not convert them each time.
const (
	fieldState  = "Ratelimit"
	fieldPolicy = "Ratelimit-Policy"
)

// The structured fields of RFC 9651 are appended to a buffer, where a library would build a tree of items for each
// response. TestFieldsParseBack in internal/roundtrip compares the two.

// appendMember begins a member of a List.
func appendMember(b []byte) []byte {
	if len(b) == 0 {
		return b
	}
	return append(b, ", "...)
}

// appendName appends the name of a limit, as a member of a List that is a String.
func appendName(b []byte, q *quota) []byte {
	b = append(appendMember(b), '"')
	if q.layer != "" {
		b = append(appendEscaped(b, q.layer), ':')
	}
	return append(appendEscaped(b, q.name), '"')
}

// appendEscaped appends the characters of a String. Those that a String cannot have are escaped already, by fieldName.
func appendEscaped(b []byte, s string) []byte {
	for i := range len(s) {
		if s[i] == '"' || s[i] == '\\' {
			b = append(b, '\\')
		}
		b = append(b, s[i])
	}
	return b
}

// appendInteger appends a number behind what comes before it, such as the name of a parameter.
func appendInteger(b []byte, before string, n int64) []byte {
	return strconv.AppendInt(append(b, before...), n, 10)
}

func writeDraft11(h http.Header, quotas []quota, v verdict) {
	latest := wholeSeconds(v.retryAfter)
	var room [2][256]byte // enough for a few limits, without an allocation
	state, policy := room[0][:0], room[1][:0]
	for i := range quotas {
		q := &quotas[i]
		t := wholeSeconds(q.effective)
		if !v.allowed {
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
	if !v.allowed {
		delete(h, fieldState) // an outer middleware's times may be beyond our Retry-After
		delete(h, fieldPolicy)
	}
	h[fieldPolicy] = append(h[fieldPolicy], string(policy))
	h[fieldState] = append(h[fieldState], string(state))
}

func writeDraft07(h http.Header, quotas []quota, q *quota, reset int64) {
	var room [128]byte
	b := appendInteger(room[:0], "limit=", q.units)
	b = appendInteger(b, ", remaining=", q.remaining)
	b = appendInteger(b, ", reset=", reset)
	h[fieldState] = []string{string(b)}
	writeNamelessPolicies(h, quotas)
}

// writeNamelessPolicies writes RateLimit-Policy as in drafts 06 and 07: units and window, for those limits
// that have a window.
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
