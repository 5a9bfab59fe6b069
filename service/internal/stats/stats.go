// Package stats counts what the service does, under the names of Envoy's rate limit service, as text and
// for Prometheus. It holds a bounded number of names, whatever requests say.
package stats

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"example.com/sash/service/internal/decide"
)

// maxRules is the most names of rules; what comes after them is counted under overflow. Only rules with
// detailed_metric or value_to_metric, and limits that requests bring, can be that many.
const (
	maxRules = 10_000
	overflow = "other"
)

// A Registry counts. It is safe for concurrent use. Make it with New.
type Registry struct {
	// Service counts what concerns no rule.
	Service Service
	// ResponseTime is how long calls of ShouldRateLimit took.
	ResponseTime prometheus.Histogram
	// Prometheus has all of it, what Go knows of the process, and what others register.
	Prometheus *prometheus.Registry

	requests [decide.Outcomes]atomic.Uint64
	duration *prometheus.HistogramVec
	took     [decide.Origins]prometheus.Observer // of duration

	mu        sync.RWMutex
	rules     map[string]*Rule     // guarded by mu
	decisions map[ruleID]*decision // guarded by mu
}

// Service counts calls and configurations.
type Service struct {
	Calls, StoreErrors, ServiceErrors, Panics atomic.Uint64
	ConfigLoaded, ConfigErrors                atomic.Uint64
	GlobalShadow                              atomic.Uint64
}

// A Rule counts units asked of one rule.
type Rule struct {
	// Total is all units, and the others are parts of them: admitted, refused, admitted above the near
	// limit ratio, and refused where that does not bind.
	Total, Within, Over, Near, Shadow atomic.Uint64
}

// New returns an empty registry.
func New() *Registry {
	r := &Registry{
		rules:      make(map[string]*Rule),
		decisions:  make(map[ruleID]*decision),
		duration:   prometheus.NewHistogramVec(durationOpts, []string{"source"}),
		Prometheus: prometheus.NewRegistry(),
		ResponseTime: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:        "ratelimit_service_response_time_seconds",
			Help:        "Time to answer a call.",
			ConstLabels: prometheus.Labels{"grpc_method": "ShouldRateLimit"},
			Buckets:     []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1},
		}),
	}
	for origin := range decide.Origins {
		r.took[origin] = r.duration.WithLabelValues(origin.String())
	}
	r.Prometheus.MustRegister(r, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// Rule returns the counters of a name.
func (r *Registry) Rule(name string) *Rule {
	r.mu.RLock()
	rule := r.rules[name]
	r.mu.RUnlock()
	if rule != nil {
		return rule
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if rule = r.rules[name]; rule != nil {
		return rule
	}
	if len(r.rules) >= maxRules {
		name = overflow
		if rule = r.rules[name]; rule != nil {
			return rule
		}
	}
	rule = &Rule{}
	r.rules[strings.Clone(name)] = rule
	return rule
}

// Took notes how long a call took.
func (r *Registry) Took(d time.Duration) {
	r.Service.Calls.Add(1)
	r.ResponseTime.Observe(d.Seconds())
}

// A value is one line of statistics.
type value struct {
	name  string
	count uint64
}

func (s *Service) values() []value {
	return []value{
		{"ratelimit_server.ShouldRateLimit.total_requests", s.Calls.Load()},
		{"ratelimit.service.call.should_rate_limit.redis_error", s.StoreErrors.Load()},
		{"ratelimit.service.call.should_rate_limit.service_error", s.ServiceErrors.Load()},
		{"ratelimit.service.call.should_rate_limit.panic", s.Panics.Load()},
		{"ratelimit.service.config_load_success", s.ConfigLoaded.Load()},
		{"ratelimit.service.config_load_error", s.ConfigErrors.Load()},
		{"ratelimit.service.global_shadow_mode", s.GlobalShadow.Load()},
	}
}

func (r *Rule) values() []value {
	return []value{
		{"total_hits", r.Total.Load()},
		{"within_limit", r.Within.Load()},
		{"over_limit", r.Over.Load()},
		{"near_limit", r.Near.Load()},
		{"shadow_mode", r.Shadow.Load()},
	}
}

// each calls f for every rule, in the order of the names.
func (r *Registry) each(f func(name string, rule *Rule)) {
	type named struct {
		name string
		rule *Rule
	}
	r.mu.RLock()
	all := make([]named, 0, len(r.rules))
	for name, rule := range r.rules {
		all = append(all, named{name, rule})
	}
	r.mu.RUnlock()
	slices.SortFunc(all, func(a, b named) int { return cmp.Compare(a.name, b.name) })
	for _, n := range all {
		f(n.name, n.rule)
	}
}

// Counters calls f for every counter, under the names of Envoy's rate limit service. They are without what
// would end a line of text or of statsd.
func (r *Registry) Counters(f func(name string, count uint64)) {
	for _, v := range r.Service.values() {
		f(v.name, v.count)
	}
	r.each(func(name string, rule *Rule) {
		for _, v := range rule.values() {
			f("ratelimit.service.rate_limit."+line(name)+"."+v.name, v.count)
		}
	})
}

// WriteText writes one line a counter, "name: value", as the statistics of Envoy's rate limit service are.
func (r *Registry) WriteText(w io.Writer) error {
	var err error
	r.Counters(func(name string, count uint64) {
		if err == nil {
			_, err = fmt.Fprintf(w, "%s: %d\n", name, count)
		}
	})
	return err
}

// line keeps a name on one line.
func line(name string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c == ':' || c == '|' || c == 0x7f {
			return '_'
		}
		return c
	}, name)
}
