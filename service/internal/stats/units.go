package stats

import (
	"sync/atomic"

	"example.com/sash"
	"example.com/sash/service/internal/decide"
)

// A Rule counts the units that are requested of one rule.
type Rule struct {
	// Total is all units, and the others are parts of them: admitted, refused, admitted above the near
	// limit ratio, and refused where that does not bind.
	Total, Within, Over, Near, Shadow atomic.Uint64
	// Cached is the part of Over that was refused from memory, because an earlier refusal still held.
	Cached atomic.Uint64
}

// Rule returns the counters of a name in Envoy's statistics.
func (r *Registry) Rule(name string) *Rule { return r.units.Get(name) }

// values returns the counters, with that of the local cache if there is one: otherwise Envoy's service has it too, and it
// is always 0.
func (r *Rule) values(cached bool) []value {
	all := []value{
		{"total_hits", r.Total.Load()},
		{"within_limit", r.Within.Load()},
		{"over_limit", r.Over.Load()},
		{"near_limit", r.Near.Load()},
		{"shadow_mode", r.Shadow.Load()},
		{"over_limit_with_local_cache", r.Cached.Load()},
	}
	if !cached {
		return all[:len(all)-1]
	}
	return all
}

// countUnits counts the units of one part, and those of its rule's candidate under the name of the candidate.
func (r *Registry) countUnits(a *decide.Answer, outcome decide.Outcome) {
	if a.Metric == "" || a.Cost <= 0 || a.Rule != nil && a.Rule.Unlimited {
		return
	}
	switch rule := r.Rule(a.Metric); outcome {
	case decide.Uncounted: // how near it is to the limit is not known
		rule.admit(a.Cost)
	case decide.Allowed:
		rule.admit(a.Cost)
		if tightest, ok := a.Tightest(); ok {
			used := tightest.Limit.Units - tightest.Remaining
			rule.Near.Add(uint64(max(0, min(a.Cost, used-r.nearOf(tightest.Limit.Units)))))
		}
	default:
		if a.Source == sash.FromCache {
			rule.Cached.Add(uint64(min(a.Cost, sash.MaxUnits)))
		}
		rule.refuse(a.Cost, a.Fitted, !a.Shadow())
		if a.Fitted > 0 {
			limit := a.RefusedBy.Limit.Units
			rule.Near.Add(uint64(limit - max(r.nearOf(limit), limit-a.Fitted)))
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

// nearOf is the units above which calls count as near a limit.
func (r *Registry) nearOf(limit int64) int64 { return int64(float64(limit) * r.near) }

func (r *Rule) admit(units int64) {
	n := uint64(min(units, sash.MaxUnits)) // requests may ask for more than any limit has
	r.Total.Add(n)
	r.Within.Add(n)
}

// refuse counts units that were refused: as in Envoy's service, those that fitted are not over the limit. Binds is false in
// shadow mode.
func (r *Rule) refuse(units, fitted int64, binds bool) {
	n := uint64(min(units, sash.MaxUnits))
	over := n - min(n, uint64(fitted))
	r.Total.Add(n)
	r.Over.Add(over)
	if !binds {
		r.Shadow.Add(over)
	}
}
