package stats

import (
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Describe implements prometheus.Collector. It describes nothing, because a rule has a label for each level.
func (r *Registry) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector. The counters of a rule are ratelimit_service_rate_limit_… with
// the labels domain, key1, key2 and so on, one for each level.
func (r *Registry) Collect(to chan<- prometheus.Metric) {
	r.ResponseTime.Collect(to)
	r.collectRequests(to)
	r.collectRules(to)
	r.collectFailures(to)
	r.collectDenied(to)
	for _, v := range r.Service.values() {
		name := strings.NewReplacer(".", "_").Replace(v.name)
		to <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, "See the documentation of the service.", nil, nil), prometheus.CounterValue, float64(v.count))
	}
	r.eachRule(func(name string, rule *Rule) {
		labels, values := labelsOf(name)
		for _, v := range rule.values() {
			desc := prometheus.NewDesc("ratelimit_service_rate_limit_"+v.name, "Units requested of a rule.", labels, nil)
			to <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(v.count), values...)
		}
	})
}

// maxLabels is the most labels of a rule: the domain and one for each level that a request can have. Keys and values
// may contain any number of dots.
const maxLabels = 33

// labelsOf cuts a rule's name at its dots, as the mapping of Envoy's rate limit service does. The last of maxLabels
// values contains the rest.
func labelsOf(name string) (labels, values []string) {
	values = strings.SplitN(strings.ToValidUTF8(name, "_"), ".", maxLabels)
	labels = append(labels, "domain")
	for i := 1; i < len(values); i++ {
		labels = append(labels, "key"+strconv.Itoa(i))
	}
	return labels, values
}
