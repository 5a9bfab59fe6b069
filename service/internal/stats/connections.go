package stats

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// Redis exports how many connections to Redis were opened and closed, under the names of Envoy's rate limit service. Call
// it once.
func (r *Registry) Redis(connections func() (opened, closed uint64)) {
	opened := func() float64 { n, _ := connections(); return float64(n) }
	closed := func() float64 { _, n := connections(); return float64(n) }
	active := func() float64 { opened, closed := connections(); return float64(opened - closed) }
	r.Prometheus.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "ratelimit_redis_pool_cx_active", Help: "Open connections to Redis that decide."}, active),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "ratelimit_redis_pool_cx_total", Help: "Connections to Redis that were opened."}, opened),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "ratelimit_redis_pool_cx_local_close", Help: "Connections to Redis that were closed."}, closed),
	)
}

// Connections exports how many connections of a port are open, and its bound. Call it once for each port.
func (r *Registry) Connections(port string, open *atomic.Int64, most int) {
	labels := prometheus.Labels{"port": port}
	r.Prometheus.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "sash_connections", Help: "Open connections of a port.", ConstLabels: labels,
		}, func() float64 { return float64(open.Load()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "sash_max_connections", Help: "The most connections of a port.", ConstLabels: labels,
		}, func() float64 { return float64(most) }),
	)
}
