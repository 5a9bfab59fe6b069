package envoy

import (
	"cmp"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.com/sash/service/internal/telemetry"
)

// telemetry reads where metrics and traces are exported. Envoy's service sends to statsd by default; this one only if a
// variable turns it on or names the server.
func (r *reader) telemetry(deployed bool) telemetry.Exporters {
	var t telemetry.Exporters
	dog, plain := r.boolean("USE_DOG_STATSD"), r.boolean("USE_STATSD")
	where := r.env("STATSD_HOST") != "" || r.env("STATSD_PORT") != ""
	switch {
	case dog && plain:
		r.fail("USE_DOG_STATSD and USE_STATSD are both true: set one of them")
	case r.boolean("DISABLE_STATS"):
	case dog, plain, deployed && where && r.env("USE_STATSD") == "" && !r.boolean("USE_PROMETHEUS"):
		t.Statsd = r.statsd(dog)
	}
	if r.boolean("USE_PROMETHEUS") {
		t.PrometheusAddr, t.PrometheusPath = r.text("PROMETHEUS_ADDR", ":9090"), r.text("PROMETHEUS_PATH", "/metrics")
		if !strings.HasPrefix(t.PrometheusPath, "/") {
			r.fail("PROMETHEUS_PATH=%s: begin it with /", t.PrometheusPath)
		}
	}
	if r.boolean("TRACING_ENABLED") {
		t.Tracing = r.tracing()
	}
	return t
}

func (r *reader) statsd(dog bool) *telemetry.Statsd {
	s := &telemetry.Statsd{Network: "udp", Dog: dog, Interval: cmp.Or(r.duration("STATS_FLUSH_INTERVAL"), 10*time.Second)}
	if !dog {
		s.Network = r.text("STATSD_PROTOCOL", "tcp")
		if s.Network != "tcp" && s.Network != "udp" {
			r.fail("STATSD_PROTOCOL=%s: use tcp or udp", s.Network)
		}
	}
	port := r.text("STATSD_PORT", "8125")
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		r.fail("STATSD_PORT=%s: use a port number", port)
	}
	s.Addr = net.JoinHostPort(r.text("STATSD_HOST", "localhost"), port)
	if text := r.env("EXTRA_TAGS"); text != "" {
		for pair := range strings.SplitSeq(text, ",") {
			key, value, ok := strings.Cut(strings.TrimSpace(pair), ":")
			if !ok || key == "" {
				r.fail("EXTRA_TAGS=%s: use key:value,key:value", text)
			}
			if value != "" {
				s.Tags = append(s.Tags, key+":"+value)
			}
		}
		slices.Sort(s.Tags)
	}
	return s
}

func (r *reader) tracing() *telemetry.Tracing {
	t := &telemetry.Tracing{
		Protocol:  r.env("TRACING_EXPORTER_PROTOCOL"),
		Service:   r.text("TRACING_SERVICE_NAME", "RateLimit"),
		Namespace: r.env("TRACING_SERVICE_NAMESPACE"),
		Instance:  r.env("TRACING_SERVICE_INSTANCE_ID"),
		Rate:      1,
	}
	if t.Protocol != "" && t.Protocol != "http" {
		r.fail("TRACING_EXPORTER_PROTOCOL=%s: use http, and the collector's port for it, such as 4318", t.Protocol)
	}
	if r.env("TRACING_SAMPLING_RATE") != "" {
		t.Rate = r.ratio("TRACING_SAMPLING_RATE", "a number from 0 to 1", func(f float64) bool { return f >= 0 && f <= 1 })
	}
	return t
}
