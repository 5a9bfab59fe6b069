package stats

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// exportedTo are where metrics and traces are exported.
var exportedTo = [...]string{"otlp", "statsd"}

var exportsDesc = prometheus.NewDesc("sash_export_failures_total", "Exports of metrics or traces that failed.", []string{"to"}, nil)

// ExportFailed counts an export to "otlp" or "statsd" that failed.
func (r *Registry) ExportFailed(to string) {
	if i := slices.Index(exportedTo[:], to); i >= 0 {
		r.exports[i].Add(1)
	}
}

// collectExports collects a counter for each, also if it is 0.
func (r *Registry) collectExports(to chan<- prometheus.Metric) {
	for i, name := range exportedTo {
		to <- prometheus.MustNewConstMetric(exportsDesc, prometheus.CounterValue, float64(r.exports[i].Load()), name)
	}
}
