// Package accesslog reads access logs: the common and combined format, JSON from nginx, Caddy and Envoy, the lines of AWS
// application load balancers, and CSV with named columns. It counts lines that it cannot parse and skips them.
package accesslog

import (
	"net/netip"
	"strings"
	"time"
)

// A Record is one request of a log. Fields that the log lacks are empty or zero.
type Record struct {
	// Time is the time of the request in the log, in microseconds since the Unix epoch.
	Time int64
	// RemoteAddress is the client's address as in the log, without a port.
	RemoteAddress string
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
