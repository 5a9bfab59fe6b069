package outgoing

import (
	"cmp"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"

	"example.com/sash"
)

// A quota is one quota of the API, as a response describes it.
type quota struct {
	name         string // in RateLimit fields
	unit         string // "requests", "tokens", "content-bytes" or "concurrent-requests"
	limit        int64  // zero means unknown
	remaining    int64  // rounded down; meaningful when hasRemaining
	hasRemaining bool
	window       time.Duration // zero means unknown
	reset        time.Duration // from the response until more is available; meaningful when hasReset
	hasReset     bool
}

// read returns the quotas that a response's fields describe. It ignores malformed fields and clamps numbers
// that exceed any limit. It measures times from the response's Date, or from now without a Date.
func (p *Profile) read(h http.Header, now time.Time) []quota {
	now = dateOf(h, now)
	quotas := readRateLimit(h, now)
	if len(quotas) > 0 && p.Quotas == nil {
		return quotas // the older fields beside them say less
	}
	for _, f := range p.quotas() {
		if q, ok := f.read(h, now); ok {
			quotas = append(quotas, q)
			if p.Quotas == nil {
				break
			}
		}
	}
	return quotas
}

func (f *QuotaFields) read(h http.Header, now time.Time) (quota, bool) {
	q := quota{unit: cmp.Or(f.Unit, unitRequests)}
	first, inLimit, _ := strings.Cut(get(h, f.Limit), ",") // drafts before 06 put the policies in it: "100, 100;w=60"
	if n, ok := number(first); ok {
		q.limit = units(n)
		q.window = cmp.Or(windowFor(q.limit, policies([]string{inLimit})), windowFor(q.limit, policies(lines(h, "RateLimit-Policy"))))
	}
	q.setRemaining(number(get(h, f.Remaining)))
	if used, limit, found := strings.Cut(get(h, f.UsedOfLimit), "/"); found {
		u, ok1 := number(used)
		n, ok2 := number(limit)
		if ok1 && ok2 {
			q.limit = units(n)
			q.setRemaining(max(0, n-u), true)
		}
	}
	q.reset, q.hasReset = resetOf(get(h, f.Reset), now)
	return q, q.hasRemaining || q.limit > 0
}

func (q *quota) setRemaining(n float64, ok bool) {
	if ok {
		q.remaining, q.hasRemaining = units(n), true
	}
}

// longestField is the length of the longest field that is read. Descriptions of quotas are short, and longer fields only cost time.
const longestField = 16 << 10

// get returns a field's first line, or "" when it is absent or too long.
func get(h http.Header, name string) string {
	if name == "" || len(h.Get(name)) > longestField {
		return ""
	}
	return strings.TrimSpace(h.Get(name))
}

// lines returns a field's lines, or nil when they are too long.
func lines(h http.Header, name string) []string {
	all, size := h.Values(name), 0
	for _, line := range all {
		size += len(line)
	}
	if size > longestField {
		return nil
	}
	return all
}

func number(s string) (float64, bool) {
	s = strings.TrimSpace(s)
	if s == "" || strings.Trim(s, "0123456789.") != "" {
		return 0, false // no signs, exponents, hexadecimal, Inf or NaN
	}
	n, err := strconv.ParseFloat(s, 64)
	return n, err == nil && !math.IsInf(n, 0)
}

func units(n float64) int64 { return int64(min(n, sash.MaxUnits)) }

// dateOf returns the time by the server's clock: the response's Date, or now if it has none.
func dateOf(h http.Header, now time.Time) time.Time {
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		return date
	}
	return now
}

// resetOf returns the time until a reset, given as a time or a delay: see [QuotaFields]. It is zero for a time in the past.
func resetOf(s string, now time.Time) (time.Duration, bool) {
	if s == "" {
		return 0, false
	}
	if n, ok := number(s); ok {
		if n > 1e12 { // milliseconds
			n /= 1e3
		}
		if n > 1e9 {
			n -= float64(now.UnixMicro()) / 1e6
		}
		return seconds(n), true
	}
	for _, layout := range [...]string{
		time.RFC3339Nano, "2006-01-02T15:04Z07:00", "2006-01-02T15:04:05.999Z0700", http.TimeFormat, time.RFC850, time.ANSIC,
	} {
		if at, err := time.Parse(layout, s); err == nil {
			return clamp(at.Sub(now)), true
		}
	}
	if d, err := time.ParseDuration(s); err == nil && !strings.HasPrefix(s, "-") {
		return clamp(d), true
	}
	return 0, false
}

// retryAfter reads Retry-After: a date, or seconds, to which some servers add a fraction.
func retryAfter(h http.Header, now time.Time) (time.Duration, bool) {
	after := get(h, "Retry-After")
	if n, ok := number(after); ok {
		return seconds(n), true // as the field's definition says, however many
	}
	return resetOf(after, dateOf(h, now))
}

// seconds returns a duration of whole milliseconds. Rounding removes the error of Unix seconds in floating point.
func seconds(n float64) time.Duration {
	n = min(max(n, 0), sash.MaxWindow.Seconds())
	return time.Duration(n*1e6+0.5) / 1000 * time.Millisecond
}

func clamp(d time.Duration) time.Duration { return min(max(d, 0), sash.MaxWindow) }

// readRateLimit reads RateLimit and RateLimit-Policy of draft-ietf-httpapi-ratelimit-headers: lists of named
// quotas (drafts 08 to 11), or one quota without a name (draft 07). Their syntax differs.
func readRateLimit(h http.Header, now time.Time) (quotas []quota) {
	list, all := lines(h, "RateLimit"), policies(lines(h, "RateLimit-Policy"))
	for _, item := range items(list) { // "name";r=50;t=30; a branch of the draft calls them a and w
		name, ok := item.Value.(string)
		remaining, found := integer(item.Params, "r", "a")
		if !ok || !found {
			continue
		}
		q := quota{name: name, unit: unitRequests}
		if i := slices.IndexFunc(all, func(p quota) bool { return p.name == name }); i >= 0 {
			q = all[i]
		}
		q.remaining, q.hasRemaining = min(remaining, sash.MaxUnits), true
		if t, ok := integer(item.Params, "t", "w"); ok {
			q.reset, q.hasReset = seconds(float64(t)), true
		}
		quotas = append(quotas, q)
	}
	if dict, err := httpsfv.UnmarshalDictionary(list); err == nil && len(quotas) == 0 {
		// These are the fields of draft 06 in one: limit=100, remaining=50, reset=30.
		older := http.Header{"Ratelimit-Policy": h.Values("RateLimit-Policy")}
		for _, name := range dict.Names() {
			member, _ := dict.Get(name)
			if item, ok := member.(httpsfv.Item); ok {
				older.Set("RateLimit-"+name, fmt.Sprint(item.Value))
			}
		}
		if q, _ := usual[0].read(older, now); q.hasRemaining {
			return []quota{q}
		}
	}
	return quotas
}

// policies reads RateLimit-Policy: "name";q=100;w=60, or without a name 100;w=60, 1000;w=3600.
func policies(lines []string) (all []quota) {
	for _, item := range items(lines) {
		q := quota{unit: unitRequests}
		limit, ok := integer(item.Params, "q")
		switch v := item.Value.(type) {
		case string:
			q.name = v
		case int64:
			limit, ok = v, v >= 0
		}
		if !ok {
			continue
		}
		unit, _ := item.Params.Get("qu")
		if s, ok := unit.(string); ok && s != "" {
			q.unit = s
		}
		window, _ := integer(item.Params, "w")
		q.limit, q.window = min(limit, sash.MaxUnits), seconds(float64(window))
		all = append(all, q)
	}
	return all
}

// windowFor returns the window of the policy without a name that has this limit, or zero.
func windowFor(limit int64, policies []quota) time.Duration {
	for _, p := range policies {
		if p.name == "" && p.limit == limit {
			return p.window
		}
	}
	return 0
}

// items returns the members of a List that are Items, or none if the List is malformed.
func items(lines []string) (all []httpsfv.Item) {
	list, _ := httpsfv.UnmarshalList(lines)
	for _, member := range list {
		if item, ok := member.(httpsfv.Item); ok {
			all = append(all, item)
		}
	}
	return all
}

// integer returns the first of the named parameters that is a non-negative whole number.
func integer(params *httpsfv.Params, names ...string) (int64, bool) {
	for _, name := range names {
		if v, ok := params.Get(name); ok {
			n, ok := v.(int64)
			return n, ok && n >= 0
		}
	}
	return 0, false
}
