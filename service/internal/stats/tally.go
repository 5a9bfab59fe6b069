package stats

import (
	"slices"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"example.com/sash/service/internal/decide"
)

// A tally counts by the values of one label. It exports each, also if it is 0, so that its first increment shows.
type tally struct {
	desc   *prometheus.Desc
	labels []string
	counts []atomic.Uint64
}

func newTally(name, help, label string, values ...string) tally {
	return tally{prometheus.NewDesc(name, help, []string{label}, nil), values, make([]atomic.Uint64, len(values))}
}

// add counts a value, if it is one of the tally's.
func (t *tally) add(value string) {
	if i := slices.Index(t.labels, value); i >= 0 {
		t.counts[i].Add(1)
	}
}

func (t *tally) collect(to chan<- prometheus.Metric) {
	for i, label := range t.labels {
		to <- prometheus.MustNewConstMetric(t.desc, prometheus.CounterValue, float64(t.counts[i].Load()), label)
	}
}

// values returns the counters under names for statsd.
func (t *tally) values(prefix string) (values []value) {
	for i, label := range t.labels {
		values = append(values, value{prefix + label, t.counts[i].Load()})
	}
	return values
}

// tallies are those of a registry.
type tallies struct{ failures, denied, exports, ports tally }

func newTallies() tallies {
	var ports []string
	for port := range decide.Ports {
		ports = append(ports, port.String())
	}
	return tallies{
		failures: newTally("sash_store_failures_total", "Calls that the store did not decide, by cause.", "cause", decide.Causes...),
		denied: newTally("sash_access_denied_total", "Requests that were not decided because their caller is not known or lacks the right.",
			"reason", "unauthenticated", "decide", "refund", "override"),
		exports: newTally("sash_export_failures_total", "Exports of traces or counters that failed.", "to", "otlp", "statsd"),
		ports:   newTally("sash_port_requests_total", "Requests for a decision by the port that they came to, without those that are invalid.", "port", ports...),
	}
}

// StoreFailed counts a call that the store did not decide.
func (r *Registry) StoreFailed(err error) { r.failures.add(decide.Cause(err)) }

// Denied counts a request whose caller was refused, by the reason: "unauthenticated", or the right that it lacks.
func (r *Registry) Denied(reason string) { r.denied.add(reason) }

// ExportFailed counts an export to "otlp" or "statsd" that failed.
func (r *Registry) ExportFailed(to string) { r.exports.add(to) }
