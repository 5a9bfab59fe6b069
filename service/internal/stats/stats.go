// Package stats counts what the service decides. One Registry observes every decision; Prometheus, statsd, /stats, the
// dashboard and the list of the hottest subjects read from it. Its memory is bounded, whatever requests
// contain.
package stats

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"example.com/sash/service/internal/decide"
)

// Options for New. The zero value is the default.
type Options struct {
	// NearLimitRatio is the part of a limit above which admitted units count as near it. Zero is 0.8.
	NearLimitRatio float64
	// Milliseconds makes ResponseTime count in milliseconds instead of seconds.
	Milliseconds bool
	// Subjects enables Hottest.
	Subjects bool
}

// A Registry counts. It is safe for concurrent use. Make it with New.
type Registry struct {
	// Service counts what concerns no rule.
	Service Service
	// ResponseTime is how long calls of ShouldRateLimit took.
	ResponseTime prometheus.Histogram
	// Prometheus gathers the metrics of this registry, of the Go runtime and of the process, and what others register.
	Prometheus *prometheus.Registry

	tallies
	requests outcomes
	rules    *Bounded[ruleID, ruleCounts]
	units    *Bounded[string, Rule]          // by the name of a rule in Envoy's statistics
	unknown  *Bounded[string, atomic.Uint64] // by the domain that requests name
	near     float64
	unit     time.Duration // of ResponseTime
	duration *prometheus.HistogramVec
	took     [decide.Origins]prometheus.Observer // the histograms of duration
	subjects *subjects                           // nil without Options.Subjects
	since    time.Time                           // when counting began
	over     *decide.OverLimit                   // nil is none
}

// Service counts calls and configurations.
type Service struct {
	Calls, StoreErrors, ServiceErrors, Panics atomic.Uint64
	ConfigLoaded, ConfigErrors                atomic.Uint64
	GlobalShadow                              atomic.Uint64
}

// New returns an empty registry. Its Observe is a decide.Observer. A nil opts is the default.
func New(opts *Options) *Registry {
	r := &Registry{
		tallies:    newTallies(),
		rules:      newRules(),
		units:      newUnits(),
		unknown:    newUnknown(),
		near:       0.8,
		unit:       time.Second,
		duration:   prometheus.NewHistogramVec(durationOpts, []string{"source"}),
		Prometheus: prometheus.NewRegistry(),
		since:      time.Now(),
	}
	if opts != nil && opts.NearLimitRatio > 0 {
		r.near = opts.NearLimitRatio
	}
	if opts != nil && opts.Milliseconds {
		r.unit = time.Millisecond
	}
	r.ResponseTime = newResponseTime(r.unit)
	if opts != nil && opts.Subjects {
		r.subjects = newSubjects()
	}
	for origin := range decide.Origins {
		r.took[origin] = r.duration.WithLabelValues(origin.String())
	}
	r.Prometheus.MustRegister(r, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

func newResponseTime(unit time.Duration) prometheus.Histogram {
	buckets := []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1}
	for i := range buckets {
		buckets[i] *= float64(time.Second / unit)
	}
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:        "ratelimit_service_response_time_seconds",
		Help:        "Time to answer a call.",
		ConstLabels: prometheus.Labels{"grpc_method": "ShouldRateLimit"},
		Buckets:     buckets,
	})
}

// Observe counts a request of any protocol.
func (r *Registry) Observe(_ context.Context, o *decide.Observation) {
	request, origin := o.Outcome(), o.Origin()
	r.requests[requestOutcome(o, request)][origin].Add(1)
	r.took[origin].Observe(o.Took.Seconds())
	if o.Unknown {
		r.unknown.Get(o.Domain).Add(uint64(len(o.Parts)))
	}
	if request == decide.Invalid {
		return
	}
	r.ports.counts[o.Port].Add(1)
	for i := range o.Answers {
		a := &o.Answers[i]
		if a.Replaced {
			continue
		}
		outcome := partOutcome(o, i)
		if a.Cost >= 0 {
			domain, rule := o.Rule(i)
			of := r.rules.Get(ruleID{domain, rule})
			of.outcomes[outcome][o.OriginOf(i)].Add(1)
			if a.Delay > 0 {
				of.queue.add(time.Now(), a.Delay)
			}
			if a.Candidate != nil {
				of.tried.count(a.Candidate)
			}
		}
		if request != decide.Failed {
			r.countUnits(a, outcome)
		}
		if r.subjects != nil {
			r.subjects.count(o, i, outcome)
		}
	}
}

// Invalid counts a request that was not decided because it is wrong: no observer learns of one that is not even a request.
func (r *Registry) Invalid() { r.requests[decide.Invalid][decide.FromConfig].Add(1) }

// Took counts a call of ShouldRateLimit and how long it took.
func (r *Registry) Took(d time.Duration) {
	r.Service.Calls.Add(1)
	r.ResponseTime.Observe(float64(d) / float64(r.unit))
}
