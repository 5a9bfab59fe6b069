package httplimit

import (
	"fmt"
	"math/bits"
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
	key       string // the subject
	units     int64
	remaining int64
	window    time.Duration // for a calendar limit, the length of the current period
	effective time.Duration // the time in which a client should use no more than remaining
	refused   bool
	retry     time.Duration
	inFlight  bool // units are requests at once, and the window is only the longest hold time
}

// inFlightRetry is when to retry for a slot that may come free at any moment.
const inFlightRetry = time.Second

// quotasOf returns the limits of a decision, named after their layers.
func quotasOf(res sash.Result, claims []claim) []quota {
	limits := res.Limits()
	quotas := make([]quota, len(limits))
	groups := 1
	for i := 1; i < len(limits); i++ {
		if limits[i].Key != limits[i-1].Key {
			groups++
		}
	}
	subject := 0
	for i := range limits {
		l := &limits[i]
		switch {
		case groups != len(claims): // a store that decides one by one reports only the subject that refused
			subject = subjectOf(l.Key, claims)
		case i > 0 && l.Key != limits[i-1].Key:
			subject++
		}
		quotas[i] = newQuota(l, claims[subject].layer, res.At)
	}
	return quotas
}

// subjectOf finds the subject of a key that has the limiter's prefix.
func subjectOf(key string, claims []claim) int {
	best := 0
	for i, c := range claims {
		mine, longest := c.subject.Key, claims[best].subject.Key
		if strings.HasSuffix(key, mine) && (len(mine) > len(longest) || !strings.HasSuffix(key, longest)) {
			best = i
		}
	}
	return best
}

func newQuota(l *sash.LimitResult, layer *Layer, at time.Time) quota {
	q := quota{
		key:       l.Key,
		units:     l.Limit.Units,
		remaining: min(l.Remaining, l.Limit.Units),
		window:    l.Limit.Window,
		refused:   l.Refused,
		retry:     l.RetryAfter,
		inFlight:  layer.Charge == InFlight,
	}
	name := l.Limit.Name
	if unnamed := sash.Every(l.Limit.Units, l.Limit.Window); q.inFlight && name == unnamed.String() {
		name = strconv.FormatInt(q.units, 10) + " at once"
	}
	q.name = fieldName(name)
	q.layer = fieldName(layer.Name)
	if q.inFlight {
		q.effective = inFlightRetry
		q.retry = min(q.retry, inFlightRetry)
		return q
	}
	if l.Limit.Period != 0 {
		zone := l.Limit.Zone
		if zone == nil {
			zone = time.UTC
		}
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
	plain := true
	for i := range len(name) {
		plain = plain && name[i] >= ' ' && name[i] <= '~'
	}
	if plain {
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
