package stats

import (
	"cmp"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"example.com/sash"
	"example.com/sash/service/internal/decide"
)

// maxSeries is the most rules that a snapshot lists, the busiest ones.
const maxSeries = 1000

// Names of series that are no rule of the configuration.
const (
	unlimited = "(no rule)"           // of requests that nothing limits
	ofRequest = "(limit of requests)" // of request limits
	others    = "(other rules)"       // of earlier configurations, beyond maxLeft
)

// Counts has one number for each outcome: of requests, or of the parts of requests that a rule applied to. A part that
// had room is Allowed, also when another part refused the request.
type Counts struct {
	Allowed   int64 `json:"allowed"`
	Uncounted int64 `json:"uncounted"` // let through while the store did not answer; nothing counts it
	Refused   int64 `json:"refused"`
	Banned    int64 `json:"banned"`
	Shadow    int64 `json:"shadow"`  // no room, and allowed because the rule is in shadow mode
	Failed    int64 `json:"error"`   // no decision: the store did not answer
	Invalid   int64 `json:"invalid"` // a wrong request; of no rule
	// Local is how many of these this instance decided over its share, while the store did not answer.
	Local int64 `json:"local"`
}

// Sum returns the sum of all outcomes.
func (c Counts) Sum() int64 {
	return c.Allowed + c.Uncounted + c.Refused + c.Banned + c.Shadow + c.Failed + c.Invalid
}

// A Series is the counts of one rule, or of all requests.
type Series struct {
	Domain string `json:"domain"`
	Rule   string `json:"rule"` // its name in statistics; empty for all requests
	Count  Counts `json:"count"`
	// LongestWait is the time in seconds until the last booking under the rule starts that this instance made.
	LongestWait float64 `json:"longest_wait"`
	// Candidate is what the rule's candidate refused or would have refused; null if it was never tried.
	Candidate *Tried `json:"candidate"`
}

// Tried is the requests that a candidate was tried on since counting began, and those that it refused, or would have
// refused.
type Tried struct {
	Requests int64 `json:"requests"`
	Refused  int64 `json:"refused"`
}

// A Snapshot is the state of the counters at an instant. A reader that wants rates compares two.
type Snapshot struct {
	At    time.Time
	Since time.Time // when counting began
	// Requests counts requests. Rules counts the decisions of each rule, the busiest first.
	Requests Series
	Rules    []Series
	// Latency is that of what the store decided.
	Latency Latency
}

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

// Snapshot returns the state of the counters now.
func (r *Registry) Snapshot() Snapshot {
	now := time.Now()
	snap := Snapshot{At: now, Since: r.since, Requests: Series{Count: r.requests.counts()}, Latency: latencyOf(r.took[sash.FromStore])}
	for id, c := range r.rules.All() {
		series := Series{Count: c.outcomes.counts(), LongestWait: c.longestWait(now)}
		if n := c.tried.Load(); n > 0 {
			series.Candidate = &Tried{int64(n), int64(c.refused.Load())}
		}
		series.Domain, series.Rule = id.series()
		snap.Rules = append(snap.Rules, series)
	}
	slices.SortFunc(snap.Rules, busier)
	snap.Rules = append([]Series{}, snap.Rules[:min(maxSeries, len(snap.Rules))]...)
	return snap
}

// series returns the domain and the name of a rule's series.
func (id ruleID) series() (domain, rule string) {
	switch {
	case id == ruleID{}:
		return "", unlimited
	case id == otherRules:
		return "", others
	case id.rule == decide.OfRequest:
		return id.domain, ofRequest
	}
	return id.domain, id.domain + "." + id.rule
}

// busier orders series by count, then by name.
func busier(x, y Series) int {
	return cmp.Or(cmp.Compare(y.Count.Sum(), x.Count.Sum()), cmp.Compare(x.Domain, y.Domain), cmp.Compare(x.Rule, y.Rule))
}
