package stats

import (
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"example.com/sash/service/internal/decide"
)

// rulePrefix begins the names of counters of rules and domains.
const rulePrefix = "ratelimit.service.rate_limit."

type value struct {
	name  string
	count uint64
}

// Counters calls f for every counter that has a name in Envoy's rate limit service, with counters of rules sorted by
// name. Names contain no characters that would end a line of text or of statsd.
func (r *Registry) Counters(f func(name string, count uint64)) {
	s := &r.Service
	for _, v := range []value{
		{"ratelimit_server.ShouldRateLimit.total_requests", s.Calls.Load()},
		{"ratelimit.service.call.should_rate_limit.redis_error", s.StoreErrors.Load()},
		{"ratelimit.service.call.should_rate_limit.service_error", s.ServiceErrors.Load()},
		{"ratelimit.service.call.should_rate_limit.panic", s.Panics.Load()},
		{"ratelimit.service.config_load_success", s.ConfigLoaded.Load()},
		{"ratelimit.service.config_load_error", s.ConfigErrors.Load()},
		{"ratelimit.service.global_shadow_mode", s.GlobalShadow.Load()},
	} {
		f(v.name, v.count)
	}
	if r.connections != nil {
		opened, closed := r.connections()
		f("ratelimit.redis_pool.cx_total", opened)
		f("ratelimit.redis_pool.cx_local_close", closed)
	}
	counts := make(map[string]uint64) // names that differ only in characters that statName replaces are one
	for name, rule := range r.units.All() {
		for i, counter := range ruleCounters {
			if i != Cached || r.over != nil {
				counts[rulePrefix+statName(name)+"."+counter] += rule[i].Load()
			}
		}
	}
	for domain, n := range r.unknown.All() {
		counts[rulePrefix+statName(domain)+".domain_not_found"] += n.Load()
	}
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		f(name, counts[name])
	}
}

// WriteText writes one line for each counter, "name: value", like the statistics of Envoy's rate limit service.
func (r *Registry) WriteText(w io.Writer) (err error) {
	write := func(name string, count uint64) {
		if err == nil {
			_, err = fmt.Fprintf(w, "%s: %d\n", name, count)
		}
	}
	r.Counters(write)
	r.Gauges(write)
	return err
}

// Remember exports the counts of an OverLimit under Envoy's names; nil exports none. Call it before the first read.
func (r *Registry) Remember(over *decide.OverLimit) { r.over = over }

// Redis exports the number of connections to Redis, under Envoy's names. Call it before the first read.
func (r *Registry) Redis(connections func() (opened, closed uint64)) { r.connections = connections }

// Gauges calls f for every gauge that has a name in Envoy's rate limit service.
func (r *Registry) Gauges(f func(name string, now uint64)) {
	if r.over != nil {
		s := r.over.Stats()
		for _, v := range []value{
			{"entryCount", s.Entries}, {"evacuateCount", s.Evacuated}, {"expiredCount", s.Expired},
			{"hitCount", s.Hits}, {"lookupCount", s.Lookups}, {"missCount", s.Misses}, {"overwriteCount", s.Overwrites},
		} {
			f("ratelimit.localcache."+v.name, v.count)
		}
	}
	if r.connections != nil {
		opened, closed := r.connections()
		f("ratelimit.redis_pool.cx_active", opened-closed)
	}
}

var address = regexp.MustCompile(`\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}`)

// statName replaces the characters that would end a name or a line, and the dots of IPv4 addresses.
func statName(name string) string {
	name = strings.Map(func(c rune) rune {
		if c < ' ' || c == ':' || c == '|' || c == 0x7f {
			return '_'
		}
		return c
	}, strings.ToValidUTF8(name, "_"))
	return address.ReplaceAllStringFunc(name, func(a string) string { return strings.ReplaceAll(a, ".", "_") })
}

// Describe implements prometheus.Collector. It describes nothing, because rules have one or two labels for their keys.
func (r *Registry) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector, with names and labels as Envoy's rate limit service maps them.
func (r *Registry) Collect(to chan<- prometheus.Metric) {
	r.collectRequests(to)
	r.collectRules(to)
	const help = "As Envoy's rate limit service counts it."
	r.Gauges(func(name string, now uint64) {
		to <- prometheus.MustNewConstMetric(prometheus.NewDesc(seriesOf(name).name, help, nil, nil), prometheus.GaugeValue, float64(now))
	})
	counts := make(map[series]uint64)
	r.Counters(func(name string, count uint64) { counts[seriesOf(name)] += count })
	for s, count := range counts {
		if plain := s; s.labels[2] == (label{"key2", ""}) { // Prometheus knows no empty label: two series would be one
			plain.labels[2] = label{}
			if other, ok := counts[plain]; ok {
				counts[plain] = other + count
				delete(counts, s)
			}
		}
	}
	for s, count := range counts {
		var labels, values []string
		for _, label := range s.labels {
			if label.name != "" {
				labels, values = append(labels, label.name), append(values, label.value)
			}
		}
		desc := prometheus.NewDesc(s.name, help, labels, nil)
		to <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(count), values...)
	}
}

// A series is a name and its labels. Labels without a name are absent.
type series struct {
	name   string
	labels [4]label
}

type label struct{ name, value string }

// seriesOf returns the series of a counter, as Envoy's rate limit service maps it. A rule has the domain and two keys,
// cut at the dots. Deeper rules, and values with further dots, count together. A candidate of a deeper rule counts
// apart from its rule. Other counters keep their names, with _ in place of each character that is no letter or digit.
func seriesOf(name string) series {
	if rest, ok := strings.CutPrefix(name, rulePrefix); ok {
		i := strings.LastIndexByte(rest, '.')
		if keys := strings.Split(rest[:i], "."); len(keys) > 1 && slices.Contains(ruleCounters[:Cached], rest[i+1:]) {
			s := series{"ratelimit_service_rate_limit_" + rest[i+1:], [4]label{{"domain", keys[0]}, {"key1", keys[1]}}}
			if len(keys) > 2 {
				s.labels[2] = label{"key2", keys[2]}
			}
			if len(keys) > 3 && keys[len(keys)-1] == "candidate" {
				s.labels[3] = label{"key3", "candidate"}
			}
			return s
		}
	}
	if kind, ok := strings.CutPrefix(name, "ratelimit.service.call.should_rate_limit."); ok {
		return series{"ratelimit_service_should_rate_limit_error", [4]label{{"err_type", kind}}}
	}
	if name == "ratelimit_server.ShouldRateLimit.total_requests" {
		return series{"ratelimit_service_total_requests", [4]label{{"grpc_method", "ShouldRateLimit"}}}
	}
	return series{name: strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' {
			return c
		}
		return '_'
	}, name)}
}

func (r *Registry) gauge(name, help string, labels prometheus.Labels, f func() float64) {
	r.Prometheus.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, f))
}

// Bit returns 1 for true.
func Bit(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// Degraded exports whether the service is degraded, as GET /healthz reports it. Call it once.
func (r *Registry) Degraded(now func() bool) {
	r.gauge("sash_degraded", "Whether GET /healthz says degraded: the store or a home does not decide, memory is full, or no domain is configured.",
		nil, func() float64 { return Bit(now()) })
}

// Connections exports how many connections of a port are open, and its bound. Call it once for each port.
func (r *Registry) Connections(port string, open *atomic.Int64, most int) {
	labels := prometheus.Labels{"port": port}
	r.gauge("sash_connections", "Open connections of a port.", labels, func() float64 { return float64(open.Load()) })
	r.gauge("sash_max_connections", "The most connections of a port.", labels, func() float64 { return float64(most) })
}
