// Package stats counts what the service decides. One Registry observes every decision. Prometheus, statsd, /stats,
// the dashboard and the list of hottest subjects read from it. Its memory is bounded, whatever requests contain.
package stats

import (
	"cmp"
	"context"
	"hash/maphash"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"

	"example.com/sash"
	"example.com/sash/service/internal/cause"
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

// A Registry counts. It is safe for concurrent use. New makes one.
type Registry struct {
	// Service counts calls that concern no rule.
	Service Service
	// ResponseTime is how long calls of ShouldRateLimit took.
	ResponseTime prometheus.Histogram
	// Prometheus gathers the metrics of this registry, of the Go runtime and of the process, and metrics that others register.
	Prometheus *prometheus.Registry

	Overrun, Unsettled prometheus.Counter // tokens that responses used beyond their estimates, and responses that could not be settled

	failures, denied, exports *prometheus.CounterVec
	ports                     [decide.Ports]prometheus.Counter
	took                      [decide.Origins]prometheus.Histogram

	requests outcomes
	rules    *Bounded[ruleID, ruleCounts]
	units    *Bounded[string, Rule]          // by a rule's name in Envoy's statistics
	unknown  *Bounded[string, atomic.Uint64] // by a domain named in requests
	near     float64
	unit     time.Duration     // of ResponseTime
	subjects *subjects         // nil without Options.Subjects
	since    time.Time         // when counting began
	over     *decide.OverLimit // nil is none

	connections func() (opened, closed uint64) // to Redis; nil is none
}

// Service counts calls and configurations.
type Service struct {
	Calls, StoreErrors, ServiceErrors, Panics atomic.Uint64
	ConfigLoaded, ConfigErrors                atomic.Uint64
	GlobalShadow                              atomic.Uint64
}

// New returns an empty registry. Its Observe is a decide.Observer. A nil opts is the default.
func New(opts *Options) *Registry {
	opts = cmp.Or(opts, &Options{})
	r := &Registry{
		rules:      NewBounded[ruleID, ruleCounts](maxLeft, otherRules, ruleID.clone),
		units:      NewBounded[string, Rule](maxNames, overflow, short),
		unknown:    NewBounded[string, atomic.Uint64](maxUnknown, overflow, short),
		near:       cmp.Or(opts.NearLimitRatio, 0.8),
		unit:       time.Second,
		Prometheus: prometheus.NewRegistry(),
		since:      time.Now(),
	}
	if opts.Milliseconds {
		r.unit = time.Millisecond
	}
	if opts.Subjects {
		r.subjects = &subjects{seed: maphash.MakeSeed()}
	}
	buckets := []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1}
	for i := range buckets {
		buckets[i] *= float64(time.Second / r.unit)
	}
	r.ResponseTime = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "ratelimit_service_response_time_seconds", Help: "Time to answer a call.",
		ConstLabels: prometheus.Labels{"grpc_method": "ShouldRateLimit"}, Buckets: buckets,
	})
	duration := prometheus.NewHistogramVec(durationOpts, []string{"source"})
	for origin := range decide.Origins {
		r.took[origin] = duration.WithLabelValues(origin.String()).(prometheus.Histogram)
	}
	r.Prometheus.MustRegister(r, r.ResponseTime, duration,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	r.failures = r.vector("sash_store_failures_total", "Calls that the store did not decide, by cause.", "cause", cause.All...)
	r.denied = r.vector("sash_access_denied_total", "Requests that were not decided because their caller is not known or lacks the right.",
		"reason", "unauthenticated", "decide", "refund", "override", "long_windows")
	r.exports = r.vector("sash_export_failures_total", "Exports of traces or counters that failed.", "to", "otlp", "statsd")
	r.Overrun = prometheus.NewCounter(prometheus.CounterOpts{Name: "sash_tokens_overrun_total", Help: "Tokens that responses used beyond their estimates."})
	r.Unsettled = prometheus.NewCounter(prometheus.CounterOpts{Name: "sash_tokens_unsettled_total", Help: "Estimates that stay charged because they could not be settled."})
	r.Prometheus.MustRegister(r.Overrun, r.Unsettled)
	ports := r.vector("sash_port_requests_total", "Requests for a decision by the port that they came to, without those that are invalid.", "port")
	for port := range decide.Ports {
		r.ports[port] = ports.WithLabelValues(port.String())
	}
	return r
}

// vector returns a counter with a label. It exports every value from 0 on, so that the first increment shows.
func (r *Registry) vector(name, help, label string, values ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	for _, value := range values {
		v.WithLabelValues(value)
	}
	r.Prometheus.MustRegister(v)
	return v
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
	r.ports[o.Port].Inc()
	for i := range o.Answers {
		a := &o.Answers[i]
		if a.Replaced {
			continue
		}
		outcome := o.OutcomeOf(i)
		if outcome == decide.Refused && a.BannedBy != nil {
			outcome = banned
		}
		if a.Cost >= 0 {
			domain, rule := o.Rule(i)
			r.rules.Get(ruleID{domain, rule}).count(a, outcome, o.OriginOf(i))
		}
		if request != decide.Failed {
			r.countUnits(a, outcome)
		}
		if r.subjects != nil {
			r.subjects.count(o, i, outcome)
		}
	}
}

// Shadowed counts the units of answers that refuse a request that is admitted all the same.
func (r *Registry) Shadowed(answers []decide.Answer) {
	for i := range answers {
		if a := &answers[i]; a.Refused && !a.Soft() && !a.Replaced && a.Metric != "" && a.Cost > 0 {
			r.Rule(a.Metric)[Shadow].Add(uint64(min(a.Cost, sash.MaxUnits)))
		}
	}
}

// Invalid counts a request that was not decided because it is invalid. Observers do not receive what is not even a request.
func (r *Registry) Invalid() { r.requests[decide.Invalid][decide.FromConfig].Add(1) }

// Uncounted returns how many requests on_unavailable: open has let through since the start. No store counts them.
func (r *Registry) Uncounted() int64 { return int64(r.requests.of(decide.Uncounted)) }

// Took counts a call of ShouldRateLimit and how long it took.
func (r *Registry) Took(d time.Duration) {
	r.Service.Calls.Add(1)
	r.ResponseTime.Observe(float64(d) / float64(r.unit))
}

// StoreFailed counts a call that the store did not decide.
func (r *Registry) StoreFailed(err error) { r.failures.WithLabelValues(cause.Of(err)).Inc() }

// Denied counts a request whose caller was refused. The reason is "unauthenticated", or the right that the caller lacks.
func (r *Registry) Denied(reason string) { r.denied.WithLabelValues(reason).Inc() }

// ExportFailed counts an export to "otlp" or "statsd" that failed.
func (r *Registry) ExportFailed(to string) { r.exports.WithLabelValues(to).Inc() }

// maxSeries is the most rules that a snapshot lists. It lists the busiest.
const maxSeries = 1000

const (
	unlimited = "(no rule)"           // for requests that nothing limits
	ofRequest = "(limit of requests)" // for request limits
	others    = "(other rules)"       // for earlier configurations, beyond maxLeft
)

// Counts has one number for each outcome, of requests or of the parts that a rule applied to.
type Counts struct {
	Allowed   int64 `json:"allowed"`
	Uncounted int64 `json:"uncounted"` // let through while the store did not answer; a rule that applies did not count it
	Refused   int64 `json:"refused"`
	Banned    int64 `json:"banned"`
	Shadow    int64 `json:"shadow"`  // allowed, and a rule that does not bind or a candidate would have refused it
	Failed    int64 `json:"error"`   // no decision: the store did not answer
	Invalid   int64 `json:"invalid"` // a wrong request; of no rule
	// Local is how many of them this instance decided with its share, while the store did not answer.
	Local int64 `json:"local"`
}

// Sum returns the sum of all outcomes.
func (c Counts) Sum() int64 {
	return c.Allowed + c.Uncounted + c.Refused + c.Banned + c.Shadow + c.Failed + c.Invalid
}

// A Series is the counts of one rule, or of all requests.
type Series struct {
	Domain string `json:"domain"`
	Rule   string `json:"rule"` // its name in statistics; empty for all requests
	Count  Counts `json:"count"`
	// LongestWait is the time in seconds until the last booking that this instance made under the rule starts.
	LongestWait float64 `json:"longest_wait"`
	// Candidate counts what the rule's candidate refused or would have refused; null if it was never tried.
	Candidate *Tried `json:"candidate"`
}

// Tried counts the requests on which a candidate was tried, and those that it refused or would have refused.
type Tried struct {
	Requests int64 `json:"requests"`
	Refused  int64 `json:"refused"`
}

// A Snapshot is the state of the counters at an instant. For rates, compare two snapshots.
type Snapshot struct {
	At    time.Time
	Since time.Time // when counting began
	// Requests counts requests. Rules counts the decisions of each rule, the busiest first.
	Requests Series
	Rules    []Series
	// Latency is the latency of the decisions that the store made.
	Latency Latency
}

// A Latency is how long the store took. Counts has the decisions within each of the Bounds, in seconds, and then all decisions.
type Latency struct {
	Bounds []float64 `json:"bounds"`
	Counts []uint64  `json:"counts"`
}

func latencyOf(of prometheus.Histogram) Latency {
	l := Latency{Bounds: durationOpts.Buckets}
	var read dto.Metric
	_ = of.Write(&read) // never fails
	for _, b := range read.GetHistogram().GetBucket() {
		l.Counts = append(l.Counts, b.GetCumulativeCount())
	}
	l.Counts = append(l.Counts, read.GetHistogram().GetSampleCount())
	return l
}

// Snapshot returns the state of the counters now.
func (r *Registry) Snapshot() Snapshot {
	now := time.Now()
	snap := Snapshot{At: now, Since: r.since, Requests: Series{Count: r.requests.counts()}, Latency: latencyOf(r.took[sash.FromStore])}
	for id, c := range r.rules.All() {
		series := Series{Count: c.outcomes.counts(), LongestWait: c.longestWait(now)}
		if n := c.tried.Load(); n > 0 {
			series.Candidate = &Tried{int64(n), int64(c.refused.Load())}
		}
		series.Domain, series.Rule = id.series()
		snap.Rules = append(snap.Rules, series)
	}
	slices.SortFunc(snap.Rules, func(x, y Series) int {
		return cmp.Or(cmp.Compare(y.Count.Sum(), x.Count.Sum()), cmp.Compare(x.Domain, y.Domain), cmp.Compare(x.Rule, y.Rule))
	})
	snap.Rules = append([]Series{}, snap.Rules[:min(maxSeries, len(snap.Rules))]...)
	return snap
}

func (id ruleID) series() (domain, rule string) {
	switch {
	case id == ruleID{}:
		return "", unlimited
	case id == otherRules:
		return "", others
	case id.rule == decide.OfRequest:
		return id.domain, ofRequest
	}
	return id.domain, id.domain + "." + id.rule
}
