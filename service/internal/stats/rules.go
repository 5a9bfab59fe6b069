package stats

import (
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"example.com/sash/service/internal/decide"
)

// A ruleID is the domain and the rule of decide.Observation.Rule. It contains no values of requests, so there are as
// many as the configurations in use have had rules. The zero value stands for requests that nothing limits.
type ruleID struct{ domain, rule string }

// ruleCounts is what is counted of a rule.
type ruleCounts struct {
	outcomes outcomes
	queue    queue
	tried    tried
}

// tried counts the requests that a rule's candidate was tried on, and those that it refused or would have refused.
type tried struct{ requests, refused atomic.Uint64 }

func (t *tried) count(candidate *decide.Answer) {
	t.requests.Add(1)
	if candidate.Refused {
		t.refused.Add(1)
	}
}

// otherRules stands for the rules beyond maxLeft.
var otherRules = ruleID{overflow, overflow}

func (id ruleID) clone() ruleID { return ruleID{strings.Clone(id.domain), strings.Clone(id.rule)} }

var (
	requestsDesc = prometheus.NewDesc("sash_requests_total", "Requests for a decision.", []string{"outcome"}, nil)
	rulesDesc    = prometheus.NewDesc("sash_decisions_total", "Decisions by rule; a request has one for each descriptor that matches a rule.",
		[]string{"domain", "rule", "outcome", "source"}, nil)
	durationOpts = prometheus.HistogramOpts{
		Name:    "sash_decision_duration_seconds",
		Help:    "Time to decide a request, by where the answer came from.",
		Buckets: []float64{.00001, .000025, .00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1},
	}
)

// collectRequests collects the metrics of requests. A request that a rule in shadow mode would have refused is allowed.
func (r *Registry) collectRequests(to chan<- prometheus.Metric) {
	r.duration.Collect(to)
	for outcome, n := range map[decide.Outcome]uint64{
		decide.Allowed:   r.requests.of(decide.Allowed) + r.requests.of(decide.Shadowed),
		decide.Uncounted: r.requests.of(decide.Uncounted),
		decide.Refused:   r.requests.of(decide.Refused) + r.requests.of(banned),
		decide.Failed:    r.requests.of(decide.Failed),
		decide.Invalid:   r.requests.of(decide.Invalid),
	} {
		to <- prometheus.MustNewConstMetric(requestsDesc, prometheus.CounterValue, float64(n), outcome.String())
	}
}

// collectRules collects the metrics of rules.
func (r *Registry) collectRules(to chan<- prometheus.Metric) {
	for id, c := range r.rules.All() {
		if id == (ruleID{}) {
			continue
		}
		domain, rule := strings.ToValidUTF8(id.domain, "_"), strings.ToValidUTF8(id.rule, "_")
		c.queue.collect(to, domain, rule)
		for outcome := range decide.Outcomes {
			for origin := range decide.Origins {
				n := c.outcomes[outcome][origin].Load()
				if outcome == decide.Refused {
					n += c.outcomes[banned][origin].Load()
				}
				if n > 0 {
					to <- prometheus.MustNewConstMetric(rulesDesc, prometheus.CounterValue, float64(n), domain, rule, outcome.String(), origin.String())
				}
			}
		}
	}
}
