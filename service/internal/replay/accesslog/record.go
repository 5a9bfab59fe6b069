package accesslog

import (
	"math"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// A Record is one request of a log. Fields that the log lacks are empty or zero.
type Record struct {
	// Time is the time of the request in the log, in microseconds since the Unix epoch.
	Time int64
	// RemoteAddress is the client's address, without a port: the one that the log names, or, of a request that came
	// through a trusted proxy ([Options.Trusted]), the one in ForwardedFor. In a log without the address of the peer, and
	// in one whose lines begin with ForwardedFor, it is the first in ForwardedFor, which a client can invent.
	RemoteAddress string
	// ForwardedFor is the list of addresses that proxies forwarded: X-Forwarded-For, Forwarded, or X-Real-IP.
	ForwardedFor string
	// User is the user's name. It is empty if the log has "-".
	User string
	// Method, Path and Query are from the request line. They are empty if that is not an HTTP request, such as those of
	// scanners.
	Method, Path, Query string
	// Status is the code of the response.
	Status int64
	// Bytes is the size of the response.
	Bytes int64
	// Duration is the time to respond, in the log's own unit.
	Duration float64
	// Host, UserAgent and Referer are headers of the request.
	Host, UserAgent, Referer string

	other others // nil if the format has no further fields
	has   fields // those of the numbers that the line has
	leads bool   // the line begins with ForwardedFor
}

// fields is a set of fields that are numbers, whose zero may also be in the log.
type fields uint8

const (
	hasStatus fields = 1 << iota
	hasBytes
	hasDuration
)

// Has reports whether the line has a field, by its name in [Fields]: a value that is neither empty nor "-".
func (r *Record) Has(field string) bool {
	switch field {
	case "remote_address":
		return r.RemoteAddress != ""
	case "forwarded_for":
		return r.ForwardedFor != ""
	case "user":
		return r.User != ""
	case "method":
		return r.Method != ""
	case "path":
		return r.Path != ""
	case "query":
		return r.Query != ""
	case "host":
		return r.Host != ""
	case "user_agent":
		return r.UserAgent != ""
	case "referer":
		return r.Referer != ""
	case "status":
		return r.has&hasStatus != 0
	case "bytes":
		return r.has&hasBytes != 0
	case "duration":
		return r.has&hasDuration != 0
	}
	return field == "time"
}

// setStatus, setBytes and setDuration set numbers from their text, which is empty or "-" if the line has none.
func (r *Record) setStatus(s string) (err error) {
	if s == "" || s == "-" {
		return nil
	}
	r.Status, err = parseStatus(s)
	r.has |= hasStatus
	return err
}

func (r *Record) setBytes(s string) (err error) {
	if s == "" || s == "-" {
		return nil
	}
	r.Bytes, err = parseSize(s)
	r.has |= hasBytes
	return err
}

// setDuration accepts a unit behind the number, and the list of several attempts that nginx writes for upstreams, of which
// it takes the last.
func (r *Record) setDuration(s string) {
	if s == "" || s == "-" {
		return
	}
	if i := strings.LastIndexAny(s, ", "); i >= 0 {
		s = s[i+1:]
	}
	if d, err := strconv.ParseFloat(strings.TrimRight(s, "nµums"), 64); err == nil && d >= 0 && !math.IsInf(d, 1) {
		r.Duration = d
		r.has |= hasDuration
	}
}

// isRequest reports whether anything beside a time was read, which a message of another kind does not have.
func (r *Record) isRequest() bool {
	return r.RemoteAddress != "" || r.ForwardedFor != "" || r.Method != "" || r.Path != "" || r.has&hasStatus != 0
}

// others are the fields of a line that are not in a Record.
type others interface {
	field(name string) string
}

// Field returns a field by its name in the log: a JSON key, with dots between levels, or a column. It returns "" if there
// is none.
func (r *Record) Field(name string) string {
	if r.other == nil {
		return ""
	}
	return r.other.field(name)
}

// Header returns a header of the request, if the log has it: as "request.headers.Name" (Caddy),
// "http_name" (nginx), "request_Name" (Traefik) or "name", with "_" for "-".
func (r *Record) Header(name string) string {
	flat := strings.ReplaceAll(strings.ToLower(name), "-", "_")
	switch flat {
	case "user_agent":
		return r.UserAgent
	case "referer":
		return r.Referer
	case "host":
		return r.Host
	case "x_forwarded_for":
		return r.ForwardedFor
	}
	if r.other == nil {
		return ""
	}
	for _, at := range []string{"request.headers." + name, "http_" + flat, "request_" + name, flat, name} {
		if v := r.other.field(at); v != "" && v != "-" {
			return v
		}
	}
	return ""
}

// When returns Time as a time in UTC.
func (r *Record) When() time.Time { return time.UnixMicro(r.Time).UTC() }

// request fills method, path and query from a request line or a URL.
func (r *Record) request(line string) {
	method, rest, ok := strings.Cut(line, " ")
	if !ok || !isMethod(method) {
		return
	}
	target, _, _ := strings.Cut(rest, " ")
	r.Method = method
	r.target(target)
}

func (r *Record) target(url string) {
	if _, after, ok := strings.Cut(url, "://"); ok && !strings.HasPrefix(url, "/") { // the absolute form
		slash := strings.IndexByte(after, '/')
		if slash < 0 {
			url = "/"
		} else {
			url = after[slash:]
		}
	}
	r.Path, r.Query, _ = strings.Cut(url, "?")
}

func isMethod(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < 'A' || c > 'Z' {
			return false
		}
	}
	return s != "" && len(s) <= 20
}

// withoutPort removes the port of an address such as "192.0.2.1:443" or "[2001:db8::1]:443".
func withoutPort(s string) string {
	if strings.IndexByte(s, ':') < 0 {
		return s
	}
	if p, err := netip.ParseAddrPort(s); err == nil {
		return p.Addr().String()
	}
	return strings.TrimSuffix(strings.TrimPrefix(s, "["), "]")
}

func dash(s string) string {
	if s == "-" {
		return ""
	}
	return s
}
