package stats

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"example.com/sash/service/internal/degrade"
)

func (r *Registry) gauge(name, help string, labels prometheus.Labels, f func() float64) {
	r.Prometheus.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, f))
}

func (r *Registry) counter(name, help string, labels prometheus.Labels, f func() float64) {
	r.Prometheus.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: labels}, f))
}

// bit returns 1 for true.
func bit(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// Degraded exports whether the service is degraded, as GET /healthz reports it. Call it once.
func (r *Registry) Degraded(now func() bool) {
	r.gauge("sash_degraded", "Whether GET /healthz says degraded: the store or a home does not decide, memory is full, or no domain is configured.",
		nil, func() float64 { return bit(now()) })
}

// Redis exports how many connections to Redis were opened and closed, under the names of Envoy's rate limit service. Call
// it once.
func (r *Registry) Redis(connections func() (opened, closed uint64)) {
	r.gauge("ratelimit_redis_pool_cx_active", "Open connections to Redis that decide.", nil,
		func() float64 { opened, closed := connections(); return float64(opened - closed) })
	r.counter("ratelimit_redis_pool_cx_total", "Connections to Redis that were opened.", nil,
		func() float64 { n, _ := connections(); return float64(n) })
	r.counter("ratelimit_redis_pool_cx_local_close", "Connections to Redis that were closed.", nil,
		func() float64 { _, n := connections(); return float64(n) })
}

// Connections exports how many connections of a port are open, and its bound. Call it once for each port.
func (r *Registry) Connections(port string, open *atomic.Int64, most int) {
	labels := prometheus.Labels{"port": port}
	r.gauge("sash_connections", "Open connections of a port.", labels, func() float64 { return float64(open.Load()) })
	r.gauge("sash_max_connections", "The most connections of a port.", labels, func() float64 { return float64(most) })
}

// Home exports what a service did at a home. A name is the value of the label home. Call it once for each name.
func (r *Registry) Home(name string, now func() degrade.HomeStats) {
	var label prometheus.Labels
	if name != "" {
		label = prometheus.Labels{"home": name}
	}
	type state = degrade.HomeStats
	for _, c := range []struct {
		name, help string
		of         func(state) int64
	}{
		{"sash_home_calls_total", "Calls to the home.", func(h state) int64 { return h.Calls }},
		{"sash_home_failures_total", "Calls to the home without an answer.", func(h state) int64 { return h.Failed }},
		{"sash_home_errands_total", "Errands to the home for units to lease.", func(h state) int64 { return h.Errands }},
		{"sash_leased_units_total", "Units that this instance has leased from the home for its region.", func(h state) int64 { return h.Leased }},
		{"sash_lease_spent_units_total", "Leased units that calls of this instance spent.", func(h state) int64 { return h.Spent }},
		{"sash_lease_returned_units_total", "Leased units that this instance gave back unspent.", func(h state) int64 { return h.Returned }},
		{"sash_home_without_region_total", "Calls that the home decided because the region's Redis did not answer.", func(h state) int64 { return h.Alone }},
	} {
		r.counter(c.name, c.help, label, func() float64 { return float64(c.of(now())) })
	}
	r.gauge("sash_home_way_seconds", "How long a call to the home takes.", label, func() float64 { return now().Way.Seconds() })
	r.gauge("sash_home_up", "Whether the home answers.", label, func() float64 { return bit(now().Up) })
}
