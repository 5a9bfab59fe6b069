package accesslog

import (
	"errors"
	"strconv"
	"strings"
	"time"
)

var errTime = errors.New("invalid time")

// Times outside these bounds count as mistakes: another unit, or another field.
var (
	earliest = time.Date(1971, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
	latest   = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
)

// parseTime parses the time of the common log format and HAProxy's, RFC 3339 with or without a "T", or a number: seconds since the
// epoch, or, if it is too large for that, milli-, micro- or nanoseconds. Without a zone it is in UTC.
func parseTime(s string) (int64, error) {
	s = strings.TrimSpace(s)
	if len(s) == 0 {
		return 0, errTime
	}
	clf := len(s) >= 20 && s[2] == '/'
	if !clf {
		if us, ok := parseEpoch(s); ok {
			return inRange(us)
		}
	}
	layout := time.RFC3339Nano
	switch {
	case clf:
		layout = "02/Jan/2006:15:04:05 -0700"
		if strings.IndexByte(s, ' ') < 0 { // HAProxy's, with milliseconds
			layout = "02/Jan/2006:15:04:05"
		}
	case len(s) >= 19 && s[10] == ' ':
		s = s[:10] + "T" + strings.Replace(s[11:], " ", "", 1)
		fallthrough
	default:
		if len(s) >= 19 && !strings.ContainsAny(s[19:], "Zz+-") {
			s += "Z"
		} else if n := len(s); n > 5 && (s[n-5] == '+' || s[n-5] == '-') {
			layout = "2006-01-02T15:04:05.999999999-0700"
		}
	}
	t, err := time.Parse(layout, s)
	if err != nil {
		return 0, errTime
	}
	return inRange(t.UnixMicro())
}

func inRange(us int64) (int64, error) {
	if us < earliest || us > latest {
		return 0, errTime
	}
	return us, nil
}

// parseEpoch parses digits with an optional fraction, without floating point.
func parseEpoch(s string) (us int64, ok bool) {
	if strings.ContainsAny(s, "eE") { // such as 1.646861401e9 from some encoders
		f, err := strconv.ParseFloat(s, 64)
		if err != nil || f < 0 || f > 1e19 {
			return 0, false
		}
		s = strconv.FormatFloat(f, 'f', -1, 64)
	}
	whole, fraction, _ := strings.Cut(s, ".")
	n, err := strconv.ParseUint(whole, 10, 63)
	if err != nil {
		return 0, false
	}
	digits := 6 // the digits of the fraction down to microseconds
	switch {
	case n >= 1e17:
		return int64(n / 1000), allDigits(fraction)
	case n >= 1e14:
		return int64(n), allDigits(fraction)
	case n >= 1e11:
		digits = 3
	}
	if !allDigits(fraction) {
		return 0, false
	}
	us = int64(n)
	for i := range digits {
		us *= 10
		if i < len(fraction) {
			us += int64(fraction[i] - '0')
		}
	}
	return us, true
}

func allDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}
