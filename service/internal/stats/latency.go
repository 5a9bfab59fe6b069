package stats

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// A Latency is how long the store took to decide since counting began: Counts has, for each of the Bounds in seconds, the
// decisions that took at most that long, and behind them all decisions.
type Latency struct {
	Bounds []float64 `json:"bounds"`
	Counts []uint64  `json:"counts"`
}

func latencyOf(of prometheus.Observer) Latency {
	l := Latency{Bounds: durationOpts.Buckets}
	var read dto.Metric
	if metric, ok := of.(prometheus.Metric); !ok || metric.Write(&read) != nil {
		return l // impossible: the observers of a HistogramVec are metrics
	}
	for _, b := range read.GetHistogram().GetBucket() {
		l.Counts = append(l.Counts, b.GetCumulativeCount())
	}
	l.Counts = append(l.Counts, read.GetHistogram().GetSampleCount())
	return l
}
