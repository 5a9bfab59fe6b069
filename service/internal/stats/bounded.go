package stats

import (
	"maps"
	"strings"
	"sync"

	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
)

// Bounds on what is counted by name besides the rules of the configuration in use, each of which always has counters of
// its own. Docs/metrics.md has them.
const (
	// maxNames is the most names that come from requests: of rules with detailed_metric or value_to_metric, and of
	// limits in requests. Further ones, and those of more than maxName bytes, count under overflow.
	maxNames = 1000
	maxName  = 256
	// maxLeft is the most rules of earlier configurations, by which requests were decided when a new one was loaded.
	maxLeft = 100
	// maxUnknown is the most domains that requests name and the configuration does not have.
	maxUnknown = 100
	overflow   = "other"
)

// A Bounded is a map that makes the value of a key on first use. Reserved keys always have a place. Of others, guests,
// it holds a bounded number; those that come after share one value. It is safe for concurrent use. Make it with
// NewBounded.
type Bounded[K comparable, V any] struct {
	most   int
	shared K
	keep   func(K) K

	mu       sync.RWMutex
	values   map[K]*V       // guarded by mu
	reserved map[K]struct{} // guarded by mu
	guests   int            // guarded by mu: of values, without shared
}

// NewBounded returns a map that holds most guests, and beyond these the key shared, which stands for all others. Keep
// returns the form in which the map keeps a guest: a copy, so that the map does not hold on to the memory of a request,
// or shared for a key that it does not keep.
func NewBounded[K comparable, V any](most int, shared K, keep func(K) K) *Bounded[K, V] {
	return &Bounded[K, V]{most: most, shared: shared, keep: keep, values: make(map[K]*V)}
}

// Reserve reserves places for these keys, in place of those reserved before, whose values it drops.
func (b *Bounded[K, V]) Reserve(keys []K) {
	next := make(map[K]struct{})
	for _, key := range keys {
		next[key] = struct{}{}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	guests := 0
	for key := range b.values {
		_, was := b.reserved[key]
		_, is := next[key]
		switch {
		case is || key == b.shared:
		case was:
			delete(b.values, key)
		default:
			guests++
		}
	}
	b.reserved, b.guests = next, guests
}

// Get returns the value of a key, which is the zero value at first.
func (b *Bounded[K, V]) Get(key K) *V {
	b.mu.RLock()
	v := b.values[key]
	if v == nil && b.guests >= b.most {
		if _, reserved := b.reserved[key]; !reserved {
			v = b.values[b.shared]
		}
	}
	b.mu.RUnlock()
	if v != nil {
		return v
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	_, reserved := b.reserved[key]
	guest := false
	switch {
	case reserved || key == b.shared:
	case b.guests >= b.most:
		key = b.shared
	default:
		key = b.keep(key)
		_, reserved = b.reserved[key]
		guest = !reserved && key != b.shared
	}
	if v = b.values[key]; v == nil {
		v = new(V)
		b.values[key] = v
		if guest {
			b.guests++
		}
	}
	return v
}

// All returns a copy of the map, so that a slow reader does not hold up those who count.
func (b *Bounded[K, V]) All() map[K]*V {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return maps.Clone(b.values)
}

// Use reserves counters for every rule of a configuration, whatever requests contain. Counters of rules that only the
// configuration before had are dropped. Call it when requests are decided by the configuration.
func (r *Registry) Use(cfg *config.Config) {
	rules, names := []ruleID{{}}, []string{}
	for _, rule := range cfg.Rules() {
		rules = append(rules, ruleID{rule.Domain, rule.Label})
		if rule.Unlimited {
			continue // no units are counted of it
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

// short returns the form in which a name that comes from a request is kept.
func short(name string) string {
	if len(name) > maxName {
		return overflow
	}
	return strings.Clone(strings.ToValidUTF8(name, "_")) // two names must not differ in what Prometheus cannot show
}
