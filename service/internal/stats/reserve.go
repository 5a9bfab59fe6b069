package stats

import (
	"strings"
	"sync/atomic"

	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
)

// Bounds on what is counted by name besides the rules of the configuration in use, each of which always has counters of
// its own. Docs/metrics.md has them.
const (
	// maxNames is the most names that come from requests: of rules with detailed_metric or value_to_metric, and of
	// limits in requests. Further ones, and those of more than maxName bytes, count under overflow.
	maxNames = 1000
	maxName  = 256
	// maxLeft is the most rules of earlier configurations, by which requests were decided when a new one was loaded.
	maxLeft = 100
	// maxUnknown is the most domains that requests name and the configuration does not have.
	maxUnknown = 100
	overflow   = "other"
)

// Use reserves counters for every rule of a configuration, whatever requests contain. Counters of rules that only the
// configuration before had are dropped. Call it when requests are decided by the configuration.
func (r *Registry) Use(cfg *config.Config) {
	rules, names := []ruleID{{}}, []string{}
	for _, rule := range cfg.Rules() {
		rules = append(rules, ruleID{rule.Domain, rule.Label})
		if rule.Unlimited {
			continue // no units are counted of it
		}
		names = append(names, rule.Metric())
		if rule.Candidate != nil {
			names = append(names, config.CandidateMetric(rule.Metric()))
		}
	}
	for _, domain := range cfg.Domains() {
		rules = append(rules, ruleID{domain, decide.OfRequest})
	}
	r.rules.Reserve(rules)
	r.units.Reserve(names)
}

func newRules() *Bounded[ruleID, ruleCounts] {
	return NewBounded[ruleID, ruleCounts](maxLeft, otherRules, ruleID.clone)
}

func newUnits() *Bounded[string, Rule] { return NewBounded[string, Rule](maxNames, overflow, short) }

func newUnknown() *Bounded[string, atomic.Uint64] {
	return NewBounded[string, atomic.Uint64](maxUnknown, overflow, short)
}

// short returns the form in which a name that comes from a request is kept.
func short(name string) string {
	if len(name) > maxName {
		return overflow
	}
	return strings.Clone(strings.ToValidUTF8(name, "_")) // two names must not differ in what Prometheus cannot show
}
