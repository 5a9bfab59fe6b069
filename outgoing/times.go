package outgoing

import (
	"net/http"
	"strings"
	"time"

	"example.com/sash"
)

// dateOf returns the server's clock, by which its resets are measured: the response's Date, or now without one.
func dateOf(h http.Header, now time.Time) time.Time {
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		return date
	}
	return now
}

// resetOf reads the time until a reset, which is a time or a delay: see [QuotaFields]. One in the past is zero.
func resetOf(s string, now time.Time) (time.Duration, bool) {
	if s == "" {
		return 0, false
	}
	if n, ok := number(s); ok {
		switch {
		case n > 1e12:
			return until(n/1e3, now), true
		case n > 1e9:
			return until(n, now), true
		}
		return seconds(n), true
	}
	for _, layout := range [...]string{time.RFC3339Nano, "2006-01-02T15:04Z07:00", "2006-01-02T15:04:05.999Z0700"} {
		if at, err := time.Parse(layout, s); err == nil {
			return clamp(at.Sub(now)), true
		}
	}
	if at, err := http.ParseTime(s); err == nil {
		return clamp(at.Sub(now)), true
	}
	if d, err := time.ParseDuration(s); err == nil && !strings.HasPrefix(s, "-") {
		return clamp(d), true
	}
	return 0, false
}

// retryAfter reads Retry-After: seconds, with a fraction from some servers, or a date.
func retryAfter(h http.Header, now time.Time) (time.Duration, bool) {
	after := get(h, "Retry-After")
	if n, ok := number(after); ok {
		return seconds(n), true // as its definition says, however many
	}
	return resetOf(after, dateOf(h, now))
}

func until(unix float64, now time.Time) time.Duration {
	return seconds(unix - float64(now.UnixMicro())/1e6)
}

// seconds returns a duration in milliseconds, rounded up beyond the precision of a float of Unix seconds.
func seconds(n float64) time.Duration {
	n = min(max(n, 0), sash.MaxWindow.Seconds())
	return time.Duration(n*1e6+0.5) / 1000 * time.Millisecond
}

func clamp(d time.Duration) time.Duration { return min(max(d, 0), sash.MaxWindow) }
