package accesslog

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Fields returns the fields of a Record for which Options can name JSON keys or columns.
func Fields() []string {
	return []string{"time", "remote_address", "user", "method", "path", "request", "status", "bytes", "duration", "host", "user_agent", "referer"}
}

// known are the names of fields in the logs of nginx, Caddy, Envoy, load balancers and others. The first one that is
// present counts. Of nginx's times only msec is finer than a second.
var known = map[string][]string{
	"time":           {"time", "timestamp", "@timestamp", "ts", "start_time", "msec", "time_iso8601", "time_local", "datetime", "date"},
	"remote_address": {"remote_address", "remote_addr", "request.client_ip", "request.remote_ip", "client_ip", "remote_ip", "clientip", "downstream_remote_address", "client", "ip", "address"},
	"user":           {"user", "remote_user", "user_id", "username"},
	"method":         {"method", "request_method", "request.method", "request_verb", "verb"},
	"path":           {"path", "request_uri", "uri", "request.uri", "request_url", "url"},
	"request":        {"request"},
	"status":         {"status", "status_code", "response_code", "elb_status_code", "response"},
	"bytes":          {"bytes", "body_bytes_sent", "bytes_sent", "sent_bytes", "size"},
	"duration":       {"duration", "request_time", "target_processing_time"},
	"host":           {"host", "http_host", "authority", "request.host"},
	"user_agent":     {"user_agent", "http_user_agent", "request.headers.User-Agent", "agent"},
	"referer":        {"referer", "http_referer", "request.headers.Referer", "referrer"},
}

var errNoTime = errors.New("no time; name its field with time=NAME")

// A naming maps the fields of a Record to names in the log.
type naming map[string][]string

func newNaming(given map[string]string) (naming, error) {
	names := make(naming, len(known))
	for field, all := range known {
		names[field] = all
	}
	for field, name := range given {
		if !slices.Contains(Fields(), field) {
			return nil, fmt.Errorf("unknown field %q: use one of %s", field, strings.Join(Fields(), ", "))
		}
		names[field] = []string{name}
	}
	return names, nil
}

func (n naming) of(field string, from others) string {
	for _, name := range n[field] {
		if v := from.field(name); v != "" && v != "-" {
			return v
		}
	}
	return ""
}

// fill fills a Record from named fields.
func (n naming) fill(r *Record, from others) error {
	r.other = from
	at := n.of("time", from)
	if at == "" {
		return errNoTime
	}
	var err error
	if r.Time, err = parseTime(at); err != nil {
		return err
	}
	if s := n.of("status", from); s != "" {
		if r.Status, err = parseStatus(s); err != nil {
			return err
		}
	}
	if s := n.of("bytes", from); s != "" {
		if r.Bytes, err = parseSize(s); err != nil {
			return err
		}
	}
	r.Duration, _ = strconv.ParseFloat(n.of("duration", from), 64)
	r.RemoteAddress = withoutPort(n.of("remote_address", from))
	r.User = n.of("user", from)
	r.Host, r.UserAgent, r.Referer = n.of("host", from), n.of("user_agent", from), n.of("referer", from)
	if line := n.of("request", from); line != "" {
		r.request(line)
	}
	if method := n.of("method", from); isMethod(method) {
		r.Method = method
	}
	if path := n.of("path", from); path != "" {
		r.target(path)
	}
	return nil
}
