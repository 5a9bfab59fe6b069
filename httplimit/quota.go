package httplimit

import (
	"cmp"
	"fmt"
	"math/bits"
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
