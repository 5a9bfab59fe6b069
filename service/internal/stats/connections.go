package stats

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

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
