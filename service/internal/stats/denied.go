package stats

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// deniedReasons are why a caller of the data ports is refused: it is not known, or lacks the right.
var deniedReasons = [...]string{"unauthenticated", "decide", "refund", "override"}

var deniedDesc = prometheus.NewDesc("sash_access_denied_total",
	"Requests that were not decided because their caller is not known or lacks the right.", []string{"reason"}, nil)

// Denied counts a request whose caller was refused.
func (r *Registry) Denied(reason string) {
	if i := slices.Index(deniedReasons[:], reason); i >= 0 {
		r.denied[i].Add(1)
	}
}

// collectDenied collects a counter for each reason, also if it is 0.
func (r *Registry) collectDenied(to chan<- prometheus.Metric) {
	for i, reason := range deniedReasons {
		to <- prometheus.MustNewConstMetric(deniedDesc, prometheus.CounterValue, float64(r.denied[i].Load()), reason)
	}
}

// deniedValues returns the same counters under names for statsd.
func (r *Registry) deniedValues() []value {
	var values []value
	for i, reason := range deniedReasons {
		values = append(values, value{"sash.access_denied." + reason, r.denied[i].Load()})
	}
	return values
}
