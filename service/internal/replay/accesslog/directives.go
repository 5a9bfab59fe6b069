package accesslog

import (
	"math"
	"strings"
)

// A setter sets a field of a record from the text of a line, which is neither empty nor "-".
type setter = func(*Record, string) error

// text returns a setter of a string.
func text(field func(*Record) *string) setter {
	return func(r *Record, s string) error { *field(r) = s; return nil }
}

// unset returns a setter that leaves a field alone which another directive has set.
func unset(field func(*Record) *string) setter {
	return func(r *Record, s string) error {
		if at := field(r); *at == "" {
			*at = s
		}
		return nil
	}
}

func hostOf(r *Record) *string      { return &r.Host }
func userOf(r *Record) *string      { return &r.User }
func agentOf(r *Record) *string     { return &r.UserAgent }
func refererOf(r *Record) *string   { return &r.Referer }
func forwardedOf(r *Record) *string { return &r.ForwardedFor }

func setAddress(r *Record, s string) error { r.RemoteAddress = withoutPort(s); return nil }
func setRequest(r *Record, s string) error { r.request(s); return nil }
func setTarget(r *Record, s string) error  { r.target(s); return nil }
func setStatus(r *Record, s string) error  { return r.setStatus(s) }
func setBytes(r *Record, s string) error   { return r.setBytes(s) }
func setTook(r *Record, s string) error    { r.setDuration(s); return nil }

func setMethod(r *Record, s string) error {
	if isMethod(s) {
		r.Method = s
	}
	return nil
}

func setQuery(r *Record, s string) error {
	r.Query = strings.TrimPrefix(s, "?")
	return nil
}

// otherBytes and otherDuration yield to a directive that is nearer to what the field means.
func otherBytes(r *Record, s string) error {
	if r.has&hasBytes != 0 {
		return nil
	}
	return r.setBytes(s)
}

func otherDuration(r *Record, s string) error {
	if r.has&hasDuration == 0 {
		r.setDuration(s)
	}
	return nil
}

func setTime(r *Record, s string) (err error) {
	r.Time, err = parseTime(strings.Trim(s, "[]"))
	return err
}

// setFraction returns a setter that adds digits of a second.
func setFraction(unit int64) setter {
	return func(r *Record, s string) error {
		n, ok := parseDigits(s)
		if !ok || n > math.MaxInt32 {
			return errTime
		}
		r.Time += n * unit
		return nil
	}
}

func parseDigits(s string) (n int64, ok bool) {
	if s == "" || len(s) > 18 || !allDigits(s) {
		return 0, false
	}
	for i := range len(s) {
		n = 10*n + int64(s[i]-'0')
	}
	return n, true
}

// Samples of values that contain spaces.
const (
	sampleTime    = "02/Jan/2006:15:04:05 -0700"
	sampleRequest = "GET / HTTP/1.1"
)
