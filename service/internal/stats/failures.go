package stats

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"example.com/sash/service/internal/decide"
)

var failuresDesc = prometheus.NewDesc("sash_store_failures_total", "Calls that the store did not decide, by cause.", []string{"cause"}, nil)

// StoreFailed counts a call that the store did not decide.
func (r *Registry) StoreFailed(err error) {
	if i := slices.Index(decide.Causes[:], decide.Cause(err)); i >= 0 {
		r.failures[i].Add(1)
	}
}

// Degraded exports whether the service is degraded, as GET /healthz reports it. Call it once.
func (r *Registry) Degraded(now func() bool) {
	r.Prometheus.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "sash_degraded", Help: "Whether GET /healthz says degraded: the store or a home does not decide, memory is full, or no domain is configured.",
	}, func() float64 {
		if now() {
			return 1
		}
		return 0
	}))
}

// Uncounted returns how many requests on_unavailable: open has let through since the start. Nothing counts them.
func (r *Registry) Uncounted() int64 { return int64(r.requests.of(decide.Uncounted)) }

// collectFailures collects a counter for each cause, also if it is 0, so that its first increment shows.
func (r *Registry) collectFailures(to chan<- prometheus.Metric) {
	for i, cause := range decide.Causes {
		to <- prometheus.MustNewConstMetric(failuresDesc, prometheus.CounterValue, float64(r.failures[i].Load()), cause)
	}
}

// failureValues returns the same counters under names for statsd, and the requests that nothing counts.
func (r *Registry) failureValues() []value {
	values := []value{{"sash.uncounted_admissions", uint64(r.Uncounted())}}
	for i, cause := range decide.Causes {
		values = append(values, value{"sash.store_failures." + cause, r.failures[i].Load()})
	}
	return values
}
