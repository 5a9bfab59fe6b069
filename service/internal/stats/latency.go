package stats

import (
	"math"
	"sort"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// A Latency is how long the store took to decide, in seconds, over the last ten seconds. Each figure is the upper bound of
// the histogram's bucket, and null without a decision or above a second, the largest bound.
type Latency struct {
	P50 *float64 `json:"p50"`
	P99 *float64 `json:"p99"`
}

// latencies is a ring of the cumulative counts of a histogram's buckets over the last meanOver. The zero value is empty.
type latencies struct {
	at     [1 + meanOver/Step]buckets
	newest int
}

// buckets are the decisions that took at most each bound of durationOpts, and behind the last all.
type buckets []uint64

// add reads a histogram and returns the latency since the oldest reading.
func (l *latencies) add(of prometheus.Observer) Latency {
	var read dto.Metric
	if metric, ok := of.(prometheus.Metric); !ok || metric.Write(&read) != nil {
		return Latency{} // impossible: the observers of a HistogramVec are metrics
	}
	now := make(buckets, 0, len(durationOpts.Buckets)+1)
	for _, b := range read.GetHistogram().GetBucket() {
		now = append(now, b.GetCumulativeCount())
	}
	now = append(now, read.GetHistogram().GetSampleCount())
	l.newest = (l.newest + 1) % len(l.at)
	oldest := l.at[(l.newest+1)%len(l.at)]
	if oldest == nil { // before its first reading all counts were zero
		oldest = make(buckets, len(now))
	}
	l.at[l.newest] = now
	return Latency{now.quantile(oldest, .5), now.quantile(oldest, .99)}
}

// quantile returns the bound that a part of the decisions since an earlier reading did not exceed.
func (b buckets) quantile(since buckets, part float64) *float64 {
	all := b[len(b)-1] - since[len(b)-1]
	rank := uint64(math.Ceil(part * float64(all)))
	i := sort.Search(len(b)-1, func(i int) bool { return b[i]-since[i] >= rank })
	if all == 0 || i == len(b)-1 {
		return nil
	}
	bound := durationOpts.Buckets[i]
	return &bound
}
