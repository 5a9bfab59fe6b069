package accesslog

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Fields returns the fields of a Record for which Options can name JSON keys or columns.
func Fields() []string {
	return []string{"time", "remote_address", "forwarded_for", "user", "method", "path", "request", "status", "bytes", "duration", "host", "user_agent", "referer"}
}

// known are the names of fields in the logs of nginx, Caddy, Traefik, Envoy, load balancers and others. The first one that is present counts, but see finerTime.
var known = map[string][]string{
	"time":           {"StartUTC", "time", "timestamp", "@timestamp", "ts", "start_time", "msec", "time_iso8601", "time_local", "datetime", "date"},
	"remote_address": {"remote_address", "remote_addr", "request.client_ip", "request.remote_ip", "client_ip", "remote_ip", "clientip", "downstream_remote_address", "ClientHost", "client", "ip", "address"},
	"forwarded_for":  {"x_forwarded_for", "http_x_forwarded_for", "request.headers.X-Forwarded-For", "request_X-Forwarded-For", "x-forwarded-for", "forwarded_for", "xff", "fwd"},
	"user":           {"user", "remote_user", "user_id", "username", "ClientUsername"},
	"method":         {"method", "request_method", "request.method", "request_verb", "verb", "RequestMethod"},
	"path":           {"path", "request_uri", "uri", "request.uri", "request_url", "url", "RequestPath"},
	"request":        {"request"},
	"status":         {"status", "status_code", "response_code", "elb_status_code", "response", "DownstreamStatus"},
	"bytes":          {"bytes", "body_bytes_sent", "bytes_sent", "sent_bytes", "size", "DownstreamContentSize"},
	"duration":       {"duration", "request_time", "target_processing_time", "Duration", "service"},
	"host":           {"host", "http_host", "authority", "request.host", "RequestHost"},
	"user_agent":     {"user_agent", "http_user_agent", "request.headers.User-Agent", "request_User-Agent", "agent"},
	"referer":        {"referer", "http_referer", "request.headers.Referer", "request_Referer", "referrer"},
}

var errNoTime = errors.New("no time; name its field with time=NAME")

// A naming maps the fields of a Record to names in the log.
type naming map[string][]string

func newNaming(given map[string]string) (naming, error) {
	names := naming(maps.Clone(known))
	for field, name := range given {
		if !slices.Contains(Fields(), field) {
			return nil, fmt.Errorf("unknown field %q: use one of %s", field, strings.Join(Fields(), ", "))
		}
		names[field] = []string{name}
	}
	return names, nil
}

func (n naming) of(field string, from others) string {
	_, v := n.find(field, from)
	return v
}

// find returns the name under which a field is present, and the value.
func (n naming) find(field string, from others) (name, value string) {
	for _, name := range n[field] {
		if v := from.field(name); v != "" && v != "-" {
			return name, v
		}
	}
	return "", ""
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
	if err = r.setStatus(n.of("status", from)); err != nil {
		return err
	}
	if err = r.setBytes(n.of("bytes", from)); err != nil {
		return err
	}
	r.setDuration(n.of("duration", from))
	r.RemoteAddress = withoutPort(n.of("remote_address", from))
	r.ForwardedFor = n.of("forwarded_for", from)
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
