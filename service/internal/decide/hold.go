package decide

import (
	"example.com/sash"
	"example.com/sash/service/internal/config"
)

// A hold is what a request is held to. No limits is nothing; a limit of no units has neither limiter nor policy.
type hold struct {
	limits  []sash.Limit
	limiter *sash.Limiter
	policy  *sash.Policy
}

// hold returns what a request is held to, by its rule.
func (s *snapshot) hold(found config.Found) hold {
	rule := found.Rule
	if rule == nil || rule.Unlimited {
		return hold{}
	}
	return hold{limits: rule.Limits, limiter: s.limiters[rule], policy: s.policies[rule]}
}
