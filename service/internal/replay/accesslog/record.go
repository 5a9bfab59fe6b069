package accesslog

import (
	"errors"
	"math"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Record is one request of a log. Fields that the log lacks are empty or zero. The tags are the names in expressions.
type Record struct {
	// Time is the start of the request in microseconds since the Unix epoch. If Ended is set, it is the end,
	// because the duration is unknown. Written is when the server wrote the line, or 0 if that is unknown.
	Time, Written int64 `expr:"-"`
	Ended         bool  `expr:"-"`
	// RemoteAddress is the client's address without a port. It is the address in the log, or, for a request
	// through a trusted proxy ([Options.Trusted]), one from ForwardedFor. If the log has no peer or its lines
	// begin with ForwardedFor, it is the first address in ForwardedFor, which a client can forge.
	RemoteAddress string `expr:"remote_address"`
	// ForwardedFor is the list of addresses that proxies forwarded: X-Forwarded-For, Forwarded, or X-Real-IP.
	ForwardedFor string `expr:"forwarded_for"`
	// User is the user's name. It is empty if the log has "-".
	User string `expr:"user"`
	// Method, Path and Query are from the request line. They are empty if that is not HTTP, as in scans.
	Method string `expr:"method"`
	Path   string `expr:"path"`
	Query  string `expr:"query"`
	// Status is the code of the response.
	Status int64 `expr:"status"`
	// Bytes is the size of the response.
	Bytes int64 `expr:"bytes"`
	// Duration is the time to respond, in the log's own unit.
	Duration float64 `expr:"duration"`
	// Host, UserAgent and Referer are headers of the request.
	Host      string `expr:"host"`
	UserAgent string `expr:"user_agent"`
	Referer   string `expr:"referer"`

	other others  // nil if the format has no other fields
	has   numbers // those that the line has
	leads bool    // the line begins with ForwardedFor
	unit  float64 // the unit of Duration in microseconds, or 0 if unknown

	from   string // how the start is known
	around string // the line with its wrappings, or ""
}

// numbers is a set of numeric fields. It tells a zero in the log from a missing field.
type numbers uint8

const (
	hasStatus numbers = 1 << iota
	hasBytes
	hasDuration
)

var numberBits = map[string]numbers{"status": hasStatus, "bytes": hasBytes, "duration": hasDuration}

// Has reports whether the line has a value other than "" and "-" for a field, by its name in [Fields]. For a
// request without a query, Has("query") is true.
func (r *Record) Has(name string) bool {
	if bit, ok := numberBits[name]; ok {
		return r.has&bit != 0
	}
	for i := range fields {
		if f := &fields[i]; f.name == name && f.text != nil {
			return *f.text(r) != ""
		}
	}
	return true
}

func (r *Record) setTime(s string) (err error) {
	r.Time, err = parseTime(s)
	return err
}

var forwardedBy = regexp.MustCompile(`(?i)[^,]*\bfor="?([^",;]+)[^,]*`)

// setForwarded accepts a list of addresses, a Forwarded header, or HAProxy's captured headers, one of which may be the list.
func (r *Record) setForwarded(s string) error {
	for one := range strings.SplitSeq(s, "|") {
		if strings.Contains(one, "=") {
			one = forwardedBy.ReplaceAllString(one, "$1")
		}
		if isForwarded(one) {
			r.ForwardedFor = one
			break
		}
	}
	return nil
}

func (r *Record) setMethod(s string) error {
	if isMethod(s) {
		r.Method = s
	}
	return nil
}

func (r *Record) setRequest(line string) error {
	method, rest, ok := strings.Cut(line, " ")
	if !ok || !isMethod(method) {
		return nil
	}
	target, _, _ := strings.Cut(rest, " ")
	r.Method = method
	return r.setTarget(target)
}

func (r *Record) setTarget(url string) error {
	if _, after, ok := strings.Cut(url, "://"); ok && !strings.HasPrefix(url, "/") { // the absolute form
		url = "/"
		if slash := strings.IndexByte(after, '/'); slash >= 0 {
			url = after[slash:]
		}
	}
	r.Path, r.Query, _ = strings.Cut(url, "?")
	return nil
}

func (r *Record) setStatus(s string) error {
	if s == "-1" { // HAProxy's for no response
		return nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > 999 {
		return errors.New("the status is not a number of three digits")
	}
	r.Status = n
	r.has |= hasStatus
	return nil
}

func (r *Record) setBytes(s string) error {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		return errors.New("the size in bytes is not a number")
	}
	r.Bytes = n
	r.has |= hasBytes
	return nil
}

// setDuration accepts a number with or without a unit, and several units as in Go. For an upstream, nginx lists
// the durations of all attempts: setDuration adds them up.
func (r *Record) setDuration(s string) error {
	sum, unit := 0.0, 0.0
	for one := range strings.FieldsFuncSeq(s, func(c rune) bool { return strings.ContainsRune(", :", c) }) {
		if one == "-" {
			continue
		}
		number := strings.TrimRight(one, "nµums")
		d, err := strconv.ParseFloat(number, 64)
		if unit = units[one[len(number):]]; err != nil {
			var whole time.Duration
			whole, err = time.ParseDuration(one)
			d, unit = whole.Seconds(), units["s"]
		}
		if err != nil || !(d >= 0 && d <= math.MaxInt64) {
			return nil
		}
		sum += d
		r.Duration, r.unit = sum, unit
		r.has |= hasDuration
	}
	return nil
}

// isRequest reports whether the line has any field of a request besides its time. Messages of other kinds have none.
func (r *Record) isRequest() bool {
	return r.RemoteAddress != "" || r.ForwardedFor != "" || r.Method != "" || r.Path != "" || r.has&hasStatus != 0
}

// Field returns a field by its name in the log: a column, or a JSON key with dots between levels. It returns "" if there is none.
func (r *Record) Field(name string) string {
	if r.other == nil {
		return ""
	}
	if v := r.other.field(name); v != "-" {
		return v
	}
	return ""
}

// Header returns a request header that the log has under one of these names: "request.headers.Name" (Caddy),
// "http_name" (nginx), "request_Name" (Traefik), or "name", with "_" for "-".
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
	for _, at := range []string{"request.headers." + name, "http_" + flat, "request_" + name, flat, name} {
		if v := r.Field(at); v != "" {
			return v
		}
	}
	return ""
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

func isAddress(s string) bool {
	if s == "-" || s == "" { // as in nearly all lines
		return false
	}
	_, err := netip.ParseAddr(s)
	return err == nil
}

// isForwarded reports whether a text is a list of addresses. The first may be any text, because a client can send it.
func isForwarded(text string) bool {
	last := text[strings.LastIndexByte(text, ',')+1:]
	return isAddress(withoutPort(strings.Trim(last, " ")))
}

var errTime = errors.New("invalid time")

// Times outside these bounds are treated as errors: another unit or another field.
var (
	earliest = time.Date(1971, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
	latest   = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
)

// parseTime parses the time of the common log format, of HAProxy, of RFC 3339 with or without "T", or a number
// as parseEpoch does. A time without a zone is in UTC.
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
		if strings.IndexByte(s, ' ') < 0 { // a HAProxy time, with milliseconds
			layout = "02/Jan/2006:15:04:05"
		}
	case len(s) >= 19 && (s[10] == ' ' || s[10] == '\t'):
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

// parseEpoch parses seconds since the epoch. A number too large for seconds is in milli-, micro- or nanoseconds.
func parseEpoch(s string) (us int64, ok bool) {
	f, err := strconv.ParseFloat(s, 64)
	switch {
	case err != nil || !(f >= 0 && f < 1e19):
		return 0, false
	case f >= 1e17:
		f /= 1e3
	case f < 1e11:
		f *= 1e6
	case f < 1e14:
		f *= 1e3
	}
	return int64(math.Round(f)), true
}

// Crawler returns the crawler that owns an address, a network or a host name, or "".
func Crawler(name string) string {
	address, err := netip.ParseAddr(name)
	if network, failed := netip.ParsePrefix(name); err != nil && failed == nil {
		address = network.Addr()
	}
	for _, entry := range entries("crawler") {
		known := strings.Fields(entry)
		if slices.ContainsFunc(known[1:], func(one string) bool {
			network, err := netip.ParsePrefix(one)
			return err == nil && network.Contains(address) || err != nil && strings.HasSuffix(name, one)
		}) {
			return known[0]
		}
	}
	return ""
}
