package stats

import (
	"github.com/prometheus/client_golang/prometheus"

	"example.com/sash/service/internal/decide"
)

var portsDesc = prometheus.NewDesc("sash_port_requests_total", "Requests for a decision by the port that they came to, without those that are invalid.", []string{"port"}, nil)

// collectPorts collects a counter for each port, also if it is 0.
func (r *Registry) collectPorts(to chan<- prometheus.Metric) {
	for port := range decide.Ports {
		to <- prometheus.MustNewConstMetric(portsDesc, prometheus.CounterValue, float64(r.ports[port].Load()), port.String())
	}
}
