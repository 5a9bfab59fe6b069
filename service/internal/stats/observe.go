package stats

import (
	"context"

	"example.com/sash"
	"example.com/sash/service/internal/decide"
)

// Observer returns an observer that counts decisions of every protocol. NearLimitRatio is the part of a limit
// above which units are counted as near it; zero is 0.8.
func (r *Registry) Observer(nearLimitRatio float64) decide.Observer {
	if nearLimitRatio <= 0 {
		nearLimitRatio = 0.8
	}
	return func(_ context.Context, o *decide.Observation) {
		r.decide(o)
		switch o.Outcome() {
		case decide.Failed, decide.Invalid:
			return
		}
		for i := range o.Answers {
			r.count(&o.Answers[i], o.OutcomeOf(i), nearLimitRatio)
		}
	}
}

// count counts the units of one part under the names of Envoy's service.
func (r *Registry) count(a *decide.Answer, outcome decide.Outcome, nearLimitRatio float64) {
	if a.Metric == "" || a.Replaced || a.Units <= 0 {
		return
	}
	units := uint64(min(a.Units, sash.MaxUnits))
	rule := r.Rule(a.Metric)
	rule.Total.Add(units)
	if outcome != decide.Allowed {
		rule.Over.Add(units)
		if outcome == decide.Shadowed {
			rule.Shadow.Add(units)
		}
		return
	}
	rule.Within.Add(units)
	if tightest, ok := a.Tightest(); ok {
		used := tightest.Limit.Units - tightest.Remaining
		near := int64(float64(tightest.Limit.Units) * nearLimitRatio)
		rule.Near.Add(uint64(max(0, min(a.Units, used-near))))
	}
}
