package stats

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
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

// A value is one line of statistics.
type value struct {
	name  string
	count uint64
}

func (s *Service) values() []value {
	return []value{
		{"ratelimit_server.ShouldRateLimit.total_requests", s.Calls.Load()},
		{"ratelimit.service.call.should_rate_limit.redis_error", s.StoreErrors.Load()},
		{"ratelimit.service.call.should_rate_limit.service_error", s.ServiceErrors.Load()},
		{"ratelimit.service.call.should_rate_limit.panic", s.Panics.Load()},
		{"ratelimit.service.config_load_success", s.ConfigLoaded.Load()},
		{"ratelimit.service.config_load_error", s.ConfigErrors.Load()},
		{"ratelimit.service.global_shadow_mode", s.GlobalShadow.Load()},
	}
}

// valuesOf returns the counters of a rule.
func (r *Registry) valuesOf(rule *Rule) []value {
	values := rule.values()
	if r.over != nil { // otherwise Envoy's service has it too, and it is always 0
		values = append(values, value{"over_limit_with_local_cache", rule.Cached.Load()})
	}
	return values
}

func (r *Rule) values() []value {
	return []value{
		{"total_hits", r.Total.Load()},
		{"within_limit", r.Within.Load()},
		{"over_limit", r.Over.Load()},
		{"near_limit", r.Near.Load()},
		{"shadow_mode", r.Shadow.Load()},
	}
}

// Counters calls f for every counter, under the names of Envoy's rate limit service where it has them, without
// characters that would end a line of text or of statsd.
func (r *Registry) Counters(f func(name string, count uint64)) {
	f("sash.uncounted_admissions", uint64(r.Uncounted()))
	for _, v := range slices.Concat(r.failures.values("sash.store_failures."), r.denied.values("sash.access_denied.")) {
		f(v.name, v.count)
	}
	r.envoys(f)
}

// WriteText writes one line a counter, "name: value", as the statistics of Envoy's rate limit service are.
func (r *Registry) WriteText(w io.Writer) error {
	var err error
	r.Counters(func(name string, count uint64) {
		if err == nil {
			_, err = fmt.Fprintf(w, "%s: %d\n", name, count)
		}
	})
	if err == nil {
		err = r.writeLocalCache(w)
	}
	return err
}

// address is an IPv4 address, as Envoy's rate limit service finds it.
var address = regexp.MustCompile(`\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}`)

// statName replaces the characters that would end a name or a line, and the dots of IPv4 addresses, which would make
// levels of them.
func statName(name string) string {
	name = strings.Map(func(c rune) rune {
		if c < ' ' || c == ':' || c == '|' || c == 0x7f {
			return '_'
		}
		return c
	}, strings.ToValidUTF8(name, "_"))
	return address.ReplaceAllStringFunc(name, func(a string) string { return strings.ReplaceAll(a, ".", "_") })
}
