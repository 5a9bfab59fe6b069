package admin

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/exceptions"
	"example.com/sash/service/internal/wire"
)

// A storeState is the state of the service's store.
type storeState struct {
	Status string `json:"status"` // ok, degraded or draining
	Store  string `json:"store"`  // up, down, probing, or memory
	// Address is where it is, without user and password; null in memory.
	Address *string `json:"address"`
	// Cause is why it is not up, as one of decide.Causes, Reason the same in words, and Error the last failure, which only
	// callers with access get.
	Cause  *string `json:"cause"`
	Reason *string `json:"reason"`
	Error  *string `json:"error"`
	// Uncounted is how many requests went ahead that nothing counts: since Since while it is not up, and otherwise in the
	// last outage.
	Uncounted int64 `json:"uncounted"`
	// Since is when it went down or came back, and For how long ago; null when none of these happened.
	Since *wire.Instant `json:"since"`
	For   *wire.Seconds `json:"for"`
	// Home is the store that all regions share; absent where there is none.
	Home *home `json:"home,omitempty"`
	// Instances is how many share the limits; 0 while that is not known.
	Instances int   `json:"instances"`
	InFlight  int   `json:"in_flight"`
	Local     local `json:"local"`
	// Memory is how full this process's memory is; absent where that is not known.
	Memory *memory `json:"memory,omitempty"`
	// Overrides and Bans are how many hold. ExceptionsCurrent says whether the last reading of them succeeded.
	Overrides         int  `json:"overrides"`
	Bans              int  `json:"bans"`
	ExceptionsCurrent bool `json:"exceptions_current"`
}

// A home is the state of a store that all regions share, and what this instance did there since it started.
type home struct {
	State   string `json:"state"` // up or down
	Address string `json:"address"`
	Calls   int64  `json:"calls"`
	Failed  int64  `json:"failed"` // of them, those without an answer
	Leased  int64  `json:"leased"` // units that this instance fetched
}

// memory is how full the store in this process's memory is.
type memory struct {
	Subjects int   `json:"subjects"`
	Bytes    int64 `json:"bytes"`
	MaxBytes int64 `json:"max_bytes"`
}

// local is what was admitted locally while the store was unavailable: see failover.Stats.
type local struct {
	Backlog  int64 `json:"backlog"`
	Written  int64 `json:"written"`
	Lost     int64 `json:"lost"`
	Doubtful int64 `json:"doubtful"`
}

// storeState returns the state of the store, with free text only for a caller with access.
func (h *handler) storeState(known bool) storeState {
	report := h.Store()
	state := storeState{
		Status: report.Status, Store: report.Health.Store, Address: wire.Text(report.Address), Cause: wire.Text(report.Cause),
		Reason: wire.Text(decide.Reasons[report.Cause]), Uncounted: report.Uncounted, Since: wire.When(report.Since),
		Instances: report.Instances, InFlight: report.Stats.InFlight,
		Local:     local{int64(report.Stats.Backlog), report.Stats.Written, report.Stats.Lost, report.Stats.Doubtful},
		Overrides: len(h.Exceptions.List(exceptions.Override)), Bans: len(h.Exceptions.List(exceptions.Ban)),
		ExceptionsCurrent: h.Exceptions.Status().Err == nil,
	}
	if of := report.Home; of != nil {
		state.Home = &home{"down", of.Address, of.Calls, of.Failed, of.Leased}
		if of.Up {
			state.Home.State = "up"
		}
	}
	if m := report.Memory; m != nil {
		state.Memory = &memory{m.Keys, m.Bytes, m.MaxBytes}
	}
	if report.Err != nil && known {
		state.Error = wire.Text(report.Err.Error())
	}
	if state.Since != nil {
		since := wire.Seconds(time.Since(report.Since))
		state.For = &since
	}
	return state
}

// A collector collects the state of the store and of the exceptions.
type collector struct{ *handler }

// Describe implements prometheus.Collector.
func (c *collector) Describe(to chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, to) }

// Collect implements prometheus.Collector.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	metric := func(kind prometheus.ValueType, name, help string, v float64) {
		to <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, nil, nil), kind, v)
	}
	const gauge, counter = prometheus.GaugeValue, prometheus.CounterValue
	report := c.Store()
	up := 0.0
	if report.Status == "ok" || report.Health.Store == "memory" {
		up = 1
	}
	metric(gauge, "sash_store_up", "1 while the store decides, 0 while the failure mode answers.", up)
	if s := report.Stats; report.Health.Store != "memory" {
		metric(gauge, "sash_store_calls_in_flight", "Calls that Redis is processing.", float64(s.InFlight))
		metric(gauge, "sash_local_backlog_subjects", "Subjects whose local charges wait to be written to Redis.", float64(s.Backlog))
		metric(counter, "sash_local_units_written_total", "Units admitted locally and written to Redis later.", float64(s.Written))
		metric(counter, "sash_local_units_lost_total", "Units admitted locally that will never be written to Redis.", float64(s.Lost))
		metric(counter, "sash_local_units_doubtful_total", "Units admitted locally that Redis may have charged already.", float64(s.Doubtful))
	}
	if m := report.Memory; m != nil {
		metric(gauge, "sash_memory_subjects", "Subjects in this process's memory.", float64(m.Keys))
		metric(gauge, "sash_memory_bytes", "Bytes of the subjects in this process's memory.", float64(m.Bytes))
		metric(gauge, "sash_memory_max_bytes", "Most bytes of subjects in this process's memory.", float64(m.MaxBytes))
		metric(counter, "sash_memory_evicted_total", "Subjects that made room for others in a full memory.", float64(m.Evicted))
		metric(counter, "sash_memory_turned_away_total", "Calls for which a full memory had no room.", float64(m.TurnedAway))
	}
	if h := report.Home; h != nil {
		homeUp := 0.0
		if h.Up {
			homeUp = 1
		}
		metric(gauge, "sash_home_up", "Whether the home answers.", homeUp)
		metric(counter, "sash_home_calls_total", "Calls to the home.", float64(h.Calls))
		metric(counter, "sash_home_failures_total", "Calls to the home without an answer.", float64(h.Failed))
		metric(counter, "sash_leased_units_total", "Units that this instance has leased from the home for its region.", float64(h.Leased))
		metric(counter, "sash_lease_spent_units_total", "Leased units that calls of this instance spent.", float64(h.Spent))
		metric(counter, "sash_lease_returned_units_total", "Leased units that this instance gave back unspent.", float64(h.Returned))
	}
	metric(gauge, "sash_instances", "Instances that share the limits; 0 while unknown.", float64(report.Instances))
	excepted := prometheus.NewDesc("sash_exceptions", "Overrides and bans in effect.", []string{"kind"}, nil)
	for _, kind := range []exceptions.Kind{exceptions.Override, exceptions.Ban} {
		to <- prometheus.MustNewConstMetric(excepted, gauge, float64(len(c.Exceptions.List(kind))), string(kind))
	}
}
