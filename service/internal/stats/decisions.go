package stats

import (
	"maps"
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"example.com/sash/service/internal/decide"
)

// A ruleID is the labels of a rule. It has no values of requests, so that there are as many as the
// configurations that were in use have rules.
type ruleID struct{ domain, rule string }

// A decision counts what became of one rule.
type decision [decide.Outcomes][decide.Origins]atomic.Uint64

// Our own metrics; those of rules, which are sash_decisions_total, are in collectDecisions.
var (
	requestsDesc = prometheus.NewDesc("sash_requests_total", "Requests for a decision.", []string{"outcome"}, nil)
	rulesDesc    = prometheus.NewDesc("sash_decisions_total", "Decisions by rule; a request asks as many rules as it has descriptors.",
		[]string{"domain", "rule", "outcome", "source"}, nil)
	durationOpts = prometheus.HistogramOpts{
		Name:    "sash_decision_duration_seconds",
		Help:    "Time to decide a request, by where the answer came from.",
		Buckets: []float64{.00001, .000025, .00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1},
	}
)

// decide counts an observation in our own metrics.
func (r *Registry) decide(o *decide.Observation) {
	outcome := o.Outcome()
	r.requests[outcome].Add(1)
	r.took[o.Origin()].Observe(o.Took.Seconds())
	if outcome == decide.Invalid {
		return
	}
	for i := range o.Answers {
		if a := &o.Answers[i]; a.Metric == "" || a.Replaced || a.Units < 0 {
			continue
		}
		domain, rule := o.Rule(i)
		r.decision(ruleID{domain, rule})[o.OutcomeOf(i)][o.OriginOf(i)].Add(1)
	}
}

// decision returns the counters of a rule.
func (r *Registry) decision(id ruleID) *decision {
	r.mu.RLock()
	d := r.decisions[id]
	r.mu.RUnlock()
	if d != nil {
		return d
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.decisions) >= maxRules && r.decisions[id] == nil {
		id = ruleID{overflow, overflow}
	}
	if d = r.decisions[id]; d == nil {
		d = new(decision)
		r.decisions[ruleID{strings.Clone(id.domain), strings.Clone(id.rule)}] = d
	}
	return d
}

func (r *Registry) collectDecisions(to chan<- prometheus.Metric) {
	r.duration.Collect(to)
	for outcome := range decide.Outcomes {
		if outcome != decide.Shadowed { // which no request is
			to <- prometheus.MustNewConstMetric(requestsDesc, prometheus.CounterValue, float64(r.requests[outcome].Load()), outcome.String())
		}
	}
	r.mu.RLock()
	all := maps.Clone(r.decisions) // whoever reads slowly must not hold up decisions
	r.mu.RUnlock()
	for id, d := range all {
		domain, rule := strings.ToValidUTF8(id.domain, "_"), strings.ToValidUTF8(id.rule, "_")
		for outcome := range decide.Outcomes {
			for origin := range decide.Origins {
				if n := d[outcome][origin].Load(); n > 0 {
					to <- prometheus.MustNewConstMetric(rulesDesc, prometheus.CounterValue, float64(n), domain, rule, outcome.String(), origin.String())
				}
			}
		}
	}
}
