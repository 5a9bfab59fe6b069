package stats

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// A Home is what a service did at the home store of its region, since the start, and what is known of the home now.
type Home struct {
	Calls, Failed                    int64 // to the home, and those without an answer
	Errands, Leased, Spent, Returned int64 // errands for units, and units that came back, were spent, and went back unspent
	Alone                            int64 // calls that the home decided because the region's Redis did not answer
	Way                              time.Duration
	Up                               bool
}

// Home exports what a service did at a home. A name is the value of the label home. Call it once for each name.
func (r *Registry) Home(name string, now func() Home) {
	var label prometheus.Labels
	if name != "" {
		label = prometheus.Labels{"home": name}
	}
	counter := func(name, help string, of func(h *Home) int64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: label}, func() float64 { h := now(); return float64(of(&h)) })
	}
	r.Prometheus.MustRegister(
		counter("sash_home_calls_total", "Calls to the home.", func(h *Home) int64 { return h.Calls }),
		counter("sash_home_failures_total", "Calls to the home without an answer.", func(h *Home) int64 { return h.Failed }),
		counter("sash_home_errands_total", "Errands to the home for units to lease.", func(h *Home) int64 { return h.Errands }),
		counter("sash_leased_units_total", "Units that this instance has leased from the home for its region.", func(h *Home) int64 { return h.Leased }),
		counter("sash_lease_spent_units_total", "Leased units that calls of this instance spent.", func(h *Home) int64 { return h.Spent }),
		counter("sash_lease_returned_units_total", "Leased units that this instance gave back unspent.", func(h *Home) int64 { return h.Returned }),
		counter("sash_home_without_region_total", "Calls that the home decided because the region's Redis did not answer.", func(h *Home) int64 { return h.Alone }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "sash_home_way_seconds", Help: "How long a call to the home takes.", ConstLabels: label},
			func() float64 { return now().Way.Seconds() }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "sash_home_up", Help: "Whether the home answers.", ConstLabels: label}, func() float64 {
			if now().Up {
				return 1
			}
			return 0
		}),
	)
}
