package stats

import (
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Describe implements prometheus.Collector. It describes nothing, because a rule has one label or two for its keys.
func (r *Registry) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector. The counters that Envoy's rate limit service has are under the names and
// labels that the mapping in that service gives them.
func (r *Registry) Collect(to chan<- prometheus.Metric) {
	r.ResponseTime.Collect(to)
	r.collectRequests(to)
	r.collectRules(to)
	for _, t := range []*tally{&r.failures, &r.denied, &r.exports, &r.ports} {
		t.collect(to)
	}
	r.collectLocalCache(to)
	counts := make(map[series]uint64)
	r.envoys(func(name string, count uint64) { counts[seriesOf(name)] += count })
	for s, count := range counts {
		labels, values := s.labels()
		desc := prometheus.NewDesc(s.name, "As Envoy's rate limit service counts it.", labels, nil)
		to <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(count), values...)
	}
}

// A series is a name and labels, most of which are empty: those without a value are not shown.
type series struct {
	name                                       string
	method, err, domain, key1, key2, candidate string
}

// labels returns the labels that have a value.
func (s series) labels() (labels, values []string) {
	add := func(label, value string) { labels, values = append(labels, label), append(values, value) }
	switch {
	case s.method != "":
		add("grpc_method", s.method)
	case s.err != "":
		add("err_type", s.err)
	case s.domain != "":
		add("domain", s.domain)
		add("key1", s.key1)
	}
	if s.key2 != "" {
		add("key2", s.key2)
	}
	if s.candidate != "" {
		add("key3", s.candidate)
	}
	return labels, values
}

// ofRule are the counters of a rule that the mapping knows.
var ofRule = []string{"near_limit", "over_limit", "total_hits", "within_limit", "shadow_mode"}

// seriesOf returns the series of a counter, as the mapping in Envoy's rate limit service has it. A rule has the domain and
// two keys, cut at the dots: those of deeper rules and of values with further dots count together. A candidate of a deeper
// rule does not count with its rule. Other counters have their names, with _ in place of what is no letter or digit.
func seriesOf(name string) series {
	if rest, ok := strings.CutPrefix(name, rulePrefix); ok {
		if i := strings.LastIndexByte(rest, '.'); i > 0 && slices.Contains(ofRule, rest[i+1:]) {
			counter := rest[i+1:]
			if keys := strings.Split(rest[:i], "."); len(keys) > 1 {
				s := series{name: "ratelimit_service_rate_limit_" + counter, domain: keys[0], key1: keys[1]}
				if len(keys) > 2 {
					s.key2 = keys[2]
				}
				if len(keys) > 3 && keys[len(keys)-1] == "candidate" {
					s.candidate = "candidate"
				}
				return s
			}
		}
	}
	if kind, ok := strings.CutPrefix(name, "ratelimit.service.call.should_rate_limit."); ok {
		return series{name: "ratelimit_service_should_rate_limit_error", err: kind}
	}
	if rest, ok := strings.CutPrefix(name, "ratelimit_server."); ok {
		if method, ok := strings.CutSuffix(rest, ".total_requests"); ok {
			return series{name: "ratelimit_service_total_requests", method: method}
		}
	}
	return series{name: strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' {
			return c
		}
		return '_'
	}, name)}
}

// rulePrefix begins the names of what is counted by rule and by domain.
const rulePrefix = "ratelimit.service.rate_limit."

// envoys calls f for every counter that has a name in Envoy's rate limit service, those of rules in the order of the names.
func (r *Registry) envoys(f func(name string, count uint64)) {
	for _, v := range r.Service.values() {
		f(v.name, v.count)
	}
	counts := make(map[string]uint64) // names that differ only in what statName replaces are one
	for name, rule := range r.units.All() {
		for _, v := range r.valuesOf(rule) {
			counts[rulePrefix+statName(name)+"."+v.name] += v.count
		}
	}
	for domain, n := range r.unknown.All() {
		counts[rulePrefix+statName(domain)+".domain_not_found"] += n.Load()
	}
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		f(name, counts[name])
	}
}
