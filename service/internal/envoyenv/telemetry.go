package envoyenv

import (
	"cmp"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Telemetry is where what happens is told, beside the admin port and the log.
type Telemetry struct {
	// Statsd gets counters; nil for none.
	Statsd *Statsd
	// PrometheusAddr is where Prometheus reads PrometheusPath; empty for the admin port only.
	PrometheusAddr, PrometheusPath string
	// Tracing is what TRACING_ENABLED asks for; nil without it.
	Tracing *Tracing
}

// Statsd is a server that counters are sent to.
type Statsd struct {
	// Network is tcp or udp, and Addr a host and a port.
	Network, Addr string
	// Dog sends Tags as DogStatsD has them, and not as parts of names.
	Dog bool
	// Tags are key:value, by key.
	Tags []string
	// Interval is how often.
	Interval time.Duration
}

// Tracing says how traces are sent. What it does not say is in the OTEL_… variables.
type Tracing struct {
	// Protocol is http or grpc; empty where only the OTEL_… variables say.
	Protocol string
	// Service, Namespace and Instance name this process; the last two may be empty.
	Service, Namespace, Instance string
	// Rate is the part of traces that is kept, of those that begin here.
	Rate float64
}

// telemetry reads it. That service sends to statsd unless it is told not to; this one when it is told that, or
// where.
func (r *reader) telemetry(deployed bool) Telemetry {
	var t Telemetry
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
			r.fail("PROMETHEUS_PATH=%s: it begins with /", t.PrometheusPath)
		}
	}
	if r.boolean("TRACING_ENABLED") {
		t.Tracing = r.tracing()
	}
	return t
}

func (r *reader) statsd(dog bool) *Statsd {
	s := &Statsd{Network: "udp", Dog: dog, Interval: cmp.Or(r.duration("STATS_FLUSH_INTERVAL"), 10*time.Second)}
	if !dog {
		s.Network = r.text("STATSD_PROTOCOL", "tcp")
		if s.Network != "tcp" && s.Network != "udp" {
			r.fail("STATSD_PROTOCOL=%s: it is tcp or udp", s.Network)
		}
	}
	port := r.text("STATSD_PORT", "8125")
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		r.fail("STATSD_PORT=%s: it is a port", port)
	}
	s.Addr = net.JoinHostPort(r.text("STATSD_HOST", "localhost"), port)
	if text := r.env("EXTRA_TAGS"); text != "" {
		for pair := range strings.SplitSeq(text, ",") {
			key, value, ok := strings.Cut(strings.TrimSpace(pair), ":")
			if !ok || key == "" {
				r.fail("EXTRA_TAGS=%s: it is key:value,key:value", text)
			}
			if value != "" {
				s.Tags = append(s.Tags, key+":"+value)
			}
		}
		slices.Sort(s.Tags)
	}
	return s
}

func (r *reader) tracing() *Tracing {
	t := &Tracing{
		Protocol:  r.env("TRACING_EXPORTER_PROTOCOL"),
		Service:   r.text("TRACING_SERVICE_NAME", "RateLimit"),
		Namespace: r.env("TRACING_SERVICE_NAMESPACE"),
		Instance:  r.env("TRACING_SERVICE_INSTANCE_ID"),
		Rate:      1,
	}
	if t.Protocol != "" && t.Protocol != "http" && t.Protocol != "grpc" {
		r.fail("TRACING_EXPORTER_PROTOCOL=%s: it is http or grpc", t.Protocol)
	}
	if text := r.env("TRACING_SAMPLING_RATE"); text != "" {
		rate, err := strconv.ParseFloat(text, 64)
		if err != nil || !(rate >= 0 && rate <= 1) {
			r.fail("TRACING_SAMPLING_RATE=%s: it is from 0 to 1", text)
		}
		t.Rate = rate
	}
	return t
}
