package stats

import (
	"fmt"
	"io"

	"github.com/prometheus/client_golang/prometheus"

	"example.com/sash/service/internal/decide"
)

// Remember shows what is remembered as over its limit under the names of the local cache of Envoy's service. Nil is
// nothing. Call it before the registry is read.
func (r *Registry) Remember(over *decide.OverLimit) { r.over = over }

// localCache returns gauges.
func (r *Registry) localCache() []value {
	if r.over == nil {
		return nil
	}
	s := r.over.Stats()
	return []value{
		{"entryCount", s.Entries}, {"evacuateCount", s.Evacuated}, {"expiredCount", s.Expired},
		{"hitCount", s.Hits}, {"lookupCount", s.Lookups}, {"missCount", s.Misses}, {"overwriteCount", s.Overwrites},
	}
}

func (r *Registry) writeLocalCache(w io.Writer) error {
	for _, v := range r.localCache() {
		if _, err := fmt.Fprintf(w, "ratelimit.localcache.%s: %d\n", v.name, v.count); err != nil {
			return err
		}
	}
	return nil
}

func (r *Registry) collectLocalCache(to chan<- prometheus.Metric) {
	for _, v := range r.localCache() {
		desc := prometheus.NewDesc("ratelimit_localcache_"+v.name, "Subjects that are remembered as over their limit.", nil, nil)
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(v.count))
	}
}
