package stats

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"example.com/sash"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
)

// Outcomes that only this package knows. A banned part was refused by a ban: metrics count it as Refused. A doubted part
// was allowed by its rule but its candidate would have refused it: metrics count it as Allowed, and Counts as Shadow.
const (
	banned = decide.Outcomes + iota
	doubted
)

type outcomes [doubted + 1][decide.Origins]atomic.Uint64

// requestOutcome returns outcome, but banned if a ban refused the request, and Shadowed if a refusal did not bind.
func requestOutcome(o *decide.Observation, outcome decide.Outcome) decide.Outcome {
	if o.Err != nil {
		return outcome
	}
	for i := range o.Answers {
		switch a := &o.Answers[i]; {
		case a.BannedBy != nil:
			return banned
		case (a.Refused || a.Candidate != nil && a.Candidate.Refused) && outcome == decide.Allowed:
			outcome = decide.Shadowed
		}
	}
	return outcome
}

func (c *outcomes) of(outcome decide.Outcome) (n uint64) {
	for origin := range c[outcome] {
		n += c[outcome][origin].Load()
	}
	return n
}

func (c *outcomes) counts() Counts {
	n := func(outcome decide.Outcome) int64 { return int64(c.of(outcome)) }
	counts := Counts{
		Allowed: n(decide.Allowed), Uncounted: n(decide.Uncounted), Refused: n(decide.Refused), Banned: n(banned),
		Shadow: n(decide.Shadowed) + n(doubted), Failed: n(decide.Failed), Invalid: n(decide.Invalid),
	}
	for outcome := range c {
		counts.Local += int64(c[outcome][sash.FromLocal].Load())
	}
	return counts
}

// A ruleID is the domain and the rule of decide.Observation.Rule. It contains no values of requests, so there are
// only as many as rules in the configurations used so far. The zero value stands for requests that nothing limits.
type ruleID struct{ domain, rule string }

// otherRules stands for the rules beyond maxLeft.
var otherRules = ruleID{overflow, overflow}

func (id ruleID) clone() ruleID { return ruleID{strings.Clone(id.domain), strings.Clone(id.rule)} }

type ruleCounts struct {
	outcomes       outcomes
	booked         atomic.Int64  // when the last booking of this instance starts, in Unix nanoseconds; 0 before the first
	tried, refused atomic.Uint64 // requests that the rule's candidate was tried on, and those that it refused
}

func (c *ruleCounts) count(a *decide.Answer, outcome decide.Outcome, origin decide.Origin) {
	if outcome == decide.Allowed && a.Candidate != nil && a.Candidate.Refused {
		outcome = doubted
	}
	c.outcomes[outcome][origin].Add(1)
	if a.Delay > 0 {
		starts := time.Now().Add(a.Delay).UnixNano()
		for last := c.booked.Load(); starts > last; last = c.booked.Load() {
			if c.booked.CompareAndSwap(last, starts) {
				break
			}
		}
	}
	if a.Candidate != nil {
		c.tried.Add(1)
		if a.Candidate.Refused {
			c.refused.Add(1)
		}
	}
}

// longestWait returns the time in seconds until the last booking starts.
func (c *ruleCounts) longestWait(now time.Time) float64 {
	return max(0, time.Unix(0, c.booked.Load()).Sub(now).Seconds())
}

var (
	requestsDesc = prometheus.NewDesc("sash_requests_total", "Requests for a decision.", []string{"outcome"}, nil)
	rulesDesc    = prometheus.NewDesc("sash_decisions_total", "Decisions by rule; a request has one for each descriptor that matches a rule.",
		[]string{"domain", "rule", "outcome", "source"}, nil)
	longestDesc = prometheus.NewDesc("sash_longest_wait_seconds", "Time until the last booking of this instance starts.",
		[]string{"domain", "rule"}, nil)
	durationOpts = prometheus.HistogramOpts{
		Name:    "sash_decision_duration_seconds",
		Help:    "Time to decide a request, by where the answer came from.",
		Buckets: []float64{.00001, .000025, .00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1},
	}
)

// collectRequests collects the metrics of requests. A request that only a rule in shadow mode would have refused counts as allowed.
func (r *Registry) collectRequests(to chan<- prometheus.Metric) {
	for outcome, n := range map[decide.Outcome]uint64{
		decide.Allowed:   r.requests.of(decide.Allowed) + r.requests.of(decide.Shadowed),
		decide.Uncounted: r.requests.of(decide.Uncounted),
		decide.Refused:   r.requests.of(decide.Refused) + r.requests.of(banned),
		decide.Failed:    r.requests.of(decide.Failed),
		decide.Invalid:   r.requests.of(decide.Invalid),
	} {
		to <- prometheus.MustNewConstMetric(requestsDesc, prometheus.CounterValue, float64(n), outcome.String())
	}
}

// collectRules collects the metrics of rules. A rule has a longest wait from its first booking on.
func (r *Registry) collectRules(to chan<- prometheus.Metric) {
	now := time.Now()
	for id, c := range r.rules.All() {
		if id == (ruleID{}) {
			continue
		}
		domain, rule := strings.ToValidUTF8(id.domain, "_"), strings.ToValidUTF8(id.rule, "_")
		if c.booked.Load() > 0 {
			to <- prometheus.MustNewConstMetric(longestDesc, prometheus.GaugeValue, c.longestWait(now), domain, rule)
		}
		for outcome := range decide.Outcomes {
			for origin := range decide.Origins {
				n := c.outcomes[outcome][origin].Load()
				switch outcome {
				case decide.Refused:
					n += c.outcomes[banned][origin].Load()
				case decide.Allowed:
					n += c.outcomes[doubted][origin].Load()
				}
				if n > 0 {
					to <- prometheus.MustNewConstMetric(rulesDesc, prometheus.CounterValue, float64(n), domain, rule, outcome.String(), origin.String())
				}
			}
		}
	}
}

// A Rule counts the units requested under one rule, by outcome.
type Rule [len(ruleCounters)]atomic.Uint64

// Counters of a Rule. Total counts all units. The others count parts of them: admitted, refused, admitted above the
// near limit ratio, and refused without binding. Cached is the part of Over that was refused from memory, because an
// earlier refusal still held. Envoy's service always has Cached; here it exists with a local cache.
const (
	Total = iota
	Within
	Over
	Near
	Shadow
	Cached
)

var ruleCounters = [...]string{"total_hits", "within_limit", "over_limit", "near_limit", "shadow_mode", "over_limit_with_local_cache"}

// Rule returns the counters under a name in Envoy's statistics.
func (r *Registry) Rule(name string) *Rule { return r.units.Get(name) }

// countUnits counts the units of one part, and those of its rule's candidate under the name of the candidate.
func (r *Registry) countUnits(a *decide.Answer, outcome decide.Outcome) {
	if a.Metric == "" || a.Cost <= 0 || a.Rule != nil && a.Rule.Unlimited {
		return
	}
	switch rule := r.Rule(a.Metric); outcome {
	case decide.Uncounted: // the use of the limit is not known
		rule.admit(a.Cost)
	case decide.Allowed:
		rule.admit(a.Cost)
		if tightest, ok := a.Tightest(); ok {
			used := tightest.Limit.Units - tightest.Remaining
			rule[Near].Add(uint64(max(0, min(a.Cost, used-r.nearOf(tightest.Limit.Units)))))
		}
	default:
		if a.Source == sash.FromCache {
			rule[Cached].Add(uint64(min(a.Cost, sash.MaxUnits)))
		}
		rule.refuse(a.Cost, a.Fitted, !a.Shadow())
		if a.Fitted > 0 {
			limit := a.RefusedBy.Limit.Units
			rule[Near].Add(uint64(limit - max(r.nearOf(limit), limit-a.Fitted)))
		}
	}
	if c := a.Candidate; c != nil && c.Cost > 0 {
		if rule := r.Rule(c.Metric); c.Refused {
			rule.refuse(c.Cost, 0, c.Enforced)
		} else {
			rule.admit(c.Cost)
		}
	}
}

func (r *Registry) nearOf(limit int64) int64 { return int64(float64(limit) * r.near) }

func (r *Rule) admit(units int64) {
	n := uint64(min(units, sash.MaxUnits)) // requests may ask for more than any limit has
	r[Total].Add(n)
	r[Within].Add(n)
}

// refuse counts refused units. As in Envoy's service, units that had room do not count as over. Binds is false in shadow mode.
func (r *Rule) refuse(units, fitted int64, binds bool) {
	n := uint64(min(units, sash.MaxUnits))
	over := n - min(n, uint64(fitted))
	r[Total].Add(n)
	r[Over].Add(over)
	if !binds {
		r[Shadow].Add(over)
	}
}

// Bounds on the names beside the rules in use, which always have counters. Docs/metrics.md lists them.
const (
	// maxNames is the most names from requests: those of request limits and of rules with detailed_metric or
	// value_to_metric. Further names, and names of more than maxName bytes, count under overflow.
	maxNames = 1000
	maxName  = 256
	// maxLeft is the most rules of earlier configurations, under which requests were decided while a new one was loaded.
	maxLeft = 100
	// maxUnknown is the most domains in requests that the configuration does not have.
	maxUnknown = 100
	overflow   = "other"
)

// A Bounded is a map that makes the value of a key on first use. Reserved keys always have a place. Of other keys,
// guests, it holds a bounded number, and the rest share one value. It is safe for concurrent use. NewBounded makes one.
type Bounded[K comparable, V any] struct {
	most   int
	shared K
	keep   func(K) K

	mu       sync.RWMutex
	values   map[K]*V   // guarded by mu
	reserved map[K]bool // guarded by mu
	guests   int        // guarded by mu: of values, without shared
}

// NewBounded returns a map with room for most guests. The key shared stands for all others. Keep returns the form of
// a guest in the map: shared, or a copy, so that the map holds no memory of a request.
func NewBounded[K comparable, V any](most int, shared K, keep func(K) K) *Bounded[K, V] {
	return &Bounded[K, V]{most: most, shared: shared, keep: keep, values: make(map[K]*V)}
}

// Reserve reserves places for these keys. It replaces the keys reserved before, and drops their values.
func (b *Bounded[K, V]) Reserve(keys []K) {
	next := make(map[K]bool)
	for _, key := range keys {
		next[key] = true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.guests = 0
	for key := range b.values {
		switch {
		case next[key] || key == b.shared:
		case b.reserved[key]:
			delete(b.values, key)
		default:
			b.guests++
		}
	}
	b.reserved = next
}

// Get returns the value of a key. A new key has the zero value.
func (b *Bounded[K, V]) Get(key K) *V {
	b.mu.RLock()
	v := b.values[key]
	if v == nil && b.guests >= b.most && !b.reserved[key] {
		v = b.values[b.shared]
	}
	b.mu.RUnlock()
	if v != nil {
		return v
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.reserved[key] {
		key = b.keep(key)
	}
	guest := b.values[key] == nil && !b.reserved[key] && key != b.shared
	if guest && b.guests >= b.most {
		key, guest = b.shared, false
	}
	if v = b.values[key]; v == nil {
		v = new(V)
		b.values[key] = v
	}
	if guest {
		b.guests++
	}
	return v
}

// All returns a copy of the map, so that a slow reader does not delay counting.
func (b *Bounded[K, V]) All() map[K]*V {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return maps.Clone(b.values)
}

// Use reserves counters for every rule of a configuration, whatever requests contain. It drops counters of rules that
// only the previous configuration had. Call it when the decider uses the configuration.
func (r *Registry) Use(cfg *config.Config) {
	rules, names := []ruleID{{}}, []string{}
	for _, rule := range cfg.Rules() {
		rules = append(rules, ruleID{rule.Domain, rule.Label})
		if rule.Unlimited {
			continue // no units are counted for it
		}
		names = append(names, rule.Metric())
		if rule.Candidate != nil {
			names = append(names, config.CandidateMetric(rule.Metric()))
		}
	}
	for _, domain := range cfg.Domains() {
		rules = append(rules, ruleID{domain, decide.OfRequest})
	}
	r.rules.Reserve(rules)
	r.units.Reserve(names)
}

// short returns the form in which a name from a request is kept.
func short(name string) string {
	if len(name) > maxName {
		return overflow
	}
	return strings.Clone(strings.ToValidUTF8(name, "_")) // two names must not differ only in what Prometheus cannot show
}
