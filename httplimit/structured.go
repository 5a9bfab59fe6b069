package httplimit

import (
	"net/http"
	"strconv"
)

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
