package admin

import (
	"github.com/prometheus/client_golang/prometheus"

	"example.com/sash/failover"
	"example.com/sash/service/internal/exceptions"
)

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

var (
	storeUp      = describe("sash_store_up", "1 while the store decides, 0 while the failure mode answers.")
	breakerState = describe("sash_breaker_state", "1 for the current state of the breaker: up, down or probing.", "state")
	inFlight     = describe("sash_store_calls_in_flight", "Calls that Redis is processing.")
	backlog      = describe("sash_local_backlog_subjects", "Subjects whose local charges wait to be written to Redis.")
	written      = describe("sash_local_units_written_total", "Units admitted locally and written to Redis later.")
	lost         = describe("sash_local_units_lost_total", "Units admitted locally that will never be written to Redis.")
	doubtful     = describe("sash_local_units_doubtful_total", "Units admitted locally that Redis may have charged already.")
	held         = describe("sash_memory_subjects", "Subjects in this process's memory.")
	mostHeld     = describe("sash_memory_max_subjects", "Most subjects in this process's memory.")
	evicted      = describe("sash_memory_evicted_total", "Subjects that made room for new ones in a full memory.")
	turnedAway   = describe("sash_memory_turned_away_total", "Calls of new subjects for which a full memory had no place.")
	instances    = describe("sash_instances", "Instances that share the limits; 0 while unknown.")
	excepted     = describe("sash_exceptions", "Overrides and bans in effect.", "kind")
	readAt       = describe("sash_exceptions_read_timestamp_seconds", "When overrides and bans were last read from the store.")
)

// A collector collects the state of the store and of the exceptions.
type collector struct{ *handler }

// Describe implements prometheus.Collector.
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	prometheus.DescribeByCollect(c, to)
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	report := c.Store()
	up := 0.0
	if report.Status == "ok" || report.Health.Store == "memory" {
		up = 1
	}
	gauge(storeUp, up)
	if report.Health.Store != "memory" {
		for _, s := range []failover.State{failover.Up, failover.Down, failover.Probing} {
			is := 0.0
			if s.String() == report.Health.Store {
				is = 1
			}
			gauge(breakerState, is, s.String())
		}
		gauge(inFlight, float64(report.Stats.InFlight))
		gauge(backlog, float64(report.Stats.Backlog))
		for d, units := range map[*prometheus.Desc]int64{written: report.Stats.Written, lost: report.Stats.Lost, doubtful: report.Stats.Doubtful} {
			to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(units))
		}
	}
	if m := report.Memory; m != nil {
		gauge(held, float64(m.Keys))
		gauge(mostHeld, float64(m.MaxKeys))
		to <- prometheus.MustNewConstMetric(evicted, prometheus.CounterValue, float64(m.Evicted))
		to <- prometheus.MustNewConstMetric(turnedAway, prometheus.CounterValue, float64(m.TurnedAway))
	}
	gauge(instances, float64(report.Instances))
	for _, kind := range []exceptions.Kind{exceptions.Override, exceptions.Ban} {
		gauge(excepted, float64(len(c.Exceptions.List(kind))), string(kind))
	}
	if at := c.Exceptions.Status().Read; !at.IsZero() {
		gauge(readAt, float64(at.UnixMilli())/1000)
	}
}
