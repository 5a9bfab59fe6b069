package stats

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"example.com/sash"
	"example.com/sash/service/internal/decide"
)

var (
	failuresDesc  = prometheus.NewDesc("sash_store_failures_total", "Calls that the store did not decide, by cause.", []string{"cause"}, nil)
	uncountedDesc = prometheus.NewDesc("sash_uncounted_admissions_total",
		"Requests that were let through by on_unavailable: open, and that nothing counts.", nil, nil)
)

// StoreFailed counts a call that the store did not decide.
func (r *Registry) StoreFailed(err error) {
	if i := slices.Index(decide.Causes[:], decide.Cause(err)); i >= 0 {
		r.failures[i].Add(1)
	}
}

// uncounted reports whether a request that was allowed has a part that only on_unavailable: open let through.
func uncounted(o *decide.Observation) bool {
	for i := range o.Answers {
		a := &o.Answers[i]
		if a.Source == sash.FromPolicy && a.Cost > 0 && a.Limited() && !a.Soft() {
			return true
		}
	}
	return false
}

// collectFailures collects a counter for each cause, also if it is 0, so that its first increment shows.
func (r *Registry) collectFailures(to chan<- prometheus.Metric) {
	for i, cause := range decide.Causes {
		to <- prometheus.MustNewConstMetric(failuresDesc, prometheus.CounterValue, float64(r.failures[i].Load()), cause)
	}
	to <- prometheus.MustNewConstMetric(uncountedDesc, prometheus.CounterValue, float64(r.uncounted.Load()))
}

// failureValues returns the same counters under names for statsd.
func (r *Registry) failureValues() []value {
	values := []value{{"sash.uncounted_admissions", r.uncounted.Load()}}
	for i, cause := range decide.Causes {
		values = append(values, value{"sash.store_failures." + cause, r.failures[i].Load()})
	}
	return values
}
