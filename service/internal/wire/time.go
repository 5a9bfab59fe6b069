package wire

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Seconds is a duration that JSON has in seconds, to the microsecond: 90 for a minute and a half,
// 0.000001 for a microsecond.
type Seconds time.Duration

// MarshalJSON writes a decimal, with no more digits than it needs.
func (s Seconds) MarshalJSON() ([]byte, error) {
	micros := time.Duration(s).Microseconds()
	b := strconv.AppendInt(nil, micros/1e6, 10)
	if rest := micros % 1e6; rest != 0 {
		digits := strconv.FormatInt(1e6+rest, 10)[1:]
		b = append(b, '.')
		b = append(b, strings.TrimRight(digits, "0")...)
	}
	return b, nil
}

// UnmarshalJSON reads a number. Null leaves the duration as it is.
func (s *Seconds) UnmarshalJSON(b []byte) error {
	text := string(b)
	if text == "null" {
		return nil
	}
	if strings.ContainsAny(text, "eE") {
		number, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return errSeconds(text)
		}
		text = strconv.FormatFloat(number, 'f', -1, 64)
	}
	d, err := time.ParseDuration(text + "s")
	if err != nil {
		return errSeconds(text)
	}
	*s = Seconds(d)
	return nil
}

func errSeconds(text string) error { return fmt.Errorf("%.40s is no number of seconds", text) }

// RoundUp returns whole seconds, never fewer than the duration: for the Retry-After field of HTTP.
func (s Seconds) RoundUp() int64 {
	return int64((time.Duration(s) + time.Second - 1) / time.Second)
}

// SetRetryAfter sets the Retry-After of an answer without a decision: 1 to 5 seconds at random, so that callers that
// failed together do not return together.
func SetRetryAfter(h http.Header) { h.Set("Retry-After", strconv.Itoa(1+rand.N(5))) }

// Instant is a time that JSON has as RFC 3339 in UTC with six decimals.
type Instant time.Time

const instantLayout = "2006-01-02T15:04:05.000000Z07:00"

// MarshalJSON writes the instant.
func (i Instant) MarshalJSON() ([]byte, error) {
	return []byte(time.Time(i).UTC().Format(`"` + instantLayout + `"`)), nil
}

// UnmarshalJSON reads an RFC 3339 time.
func (i *Instant) UnmarshalJSON(b []byte) error {
	return (*time.Time)(i).UnmarshalJSON(b)
}

// When returns a time as JSON has it, or nil for the zero time.
func When(t time.Time) *Instant {
	if t.IsZero() {
		return nil
	}
	i := Instant(t)
	return &i
}
