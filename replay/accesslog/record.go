// Package accesslog reads access logs: the common and combined format, JSON as nginx, Caddy and Envoy write
// it, the lines of AWS application load balancers, and CSV with named columns. A line that cannot be read is
// counted and kept apart, and never ends the reading.
package accesslog

import (
	"net/netip"
	"strings"
	"time"
)

// A Record is one request of a log. What a log does not tell is empty or zero.
type Record struct {
	// Time is when the log says the request was: in microseconds since the Unix epoch.
	Time int64
	// RemoteAddress is who sent it, as the log has it, without a port.
	RemoteAddress string
	// User is the user's name. A log's "-" is empty.
	User string
	// Method, Path and Query are of the request line. A line that is no HTTP request, as scanners send
	// them, leaves them empty.
	Method, Path, Query string
	// Status is the answer's code.
	Status int64
	// Bytes is the size of the answer.
	Bytes int64
	// Duration is how long the answer took, in the log's own unit.
	Duration float64
	// Host, UserAgent and Referer are headers of the request.
	Host, UserAgent, Referer string

	other others // nil where a format has nothing more
}

// others are the fields of a line that have no place of their own in a Record.
type others interface {
	field(name string) string
}

// Field returns a field by the name it has in the log (a JSON key, with dots between levels, or a column).
// It is empty when there is none.
func (r *Record) Field(name string) string {
	if r.other == nil {
		return ""
	}
	return r.other.field(name)
}

// Header returns a header of the request, if the log has it: as "request.headers.Name" (Caddy),
// "http_name" (nginx) or "name", with "_" for "-".
func (r *Record) Header(name string) string {
	flat := strings.ReplaceAll(strings.ToLower(name), "-", "_")
	switch flat {
	case "user_agent":
		return r.UserAgent
	case "referer":
		return r.Referer
	case "host":
		return r.Host
	}
	if r.other == nil {
		return ""
	}
	for _, at := range []string{"request.headers." + name, "http_" + flat, flat, name} {
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
	if _, after, ok := strings.Cut(url, "://"); ok && !strings.HasPrefix(url, "/") { // an absolute form
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

// withoutPort takes the port from an address such as "192.0.2.1:443" or "[2001:db8::1]:443".
func withoutPort(s string) string {
	if p, err := netip.ParseAddrPort(s); err == nil {
		return p.Addr().String()
	}
	return s
}

func dash(s string) string {
	if s == "-" {
		return ""
	}
	return s
}
