package stats

import (
	"github.com/prometheus/client_golang/prometheus"

	"example.com/sash/service/internal/decide"
)

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
