package decide

import (
	"context"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/service/internal/config"
)

// A tried is a rule's candidate as the store sees it.
type tried struct {
	*config.Candidate
	limiter *sash.Limiter
	policy  *driver.Policy
}

// try makes what a rule's candidate needs.
func (s *snapshot) try(store driver.Store, rule *config.Rule) error {
	c := rule.Candidate
	if c == nil {
		return nil
	}
	limiter, err := sash.New(store, &c.Options, c.Limits...)
	if err != nil {
		return err
	}
	policy, err := sash.NewPolicy(&c.Options, c.Limits...)
	if err != nil {
		return err
	}
	s.tried[rule] = &tried{c, limiter, policy}
	return nil
}

// try holds a subject that is enforced to a candidate, if there is one, in place of the rule's limits.
func (h *hold) try(t *tried, key string) {
	if h.tried = t; t != nil && t.Enforced(key) {
		h.limits, h.limiter, h.policy = t.Limits, t.limiter, t.policy
	}
}

// watch tells each answer what its rule's candidate did, or, where it is not enforced, would have done. That is
// found on a key of its own, which is charged as if the candidate were the only limit of the rule: whatever the rule
// has said, and only when no other part refused the request. It is one more call to the
// store, within the store's budget, and left out when that does not decide: what is tried out must stop nobody.
func watch(ctx context.Context, store driver.Store, parts []Part, answers []Answer, how Charging) {
	refused, tries := 0, false
	for i := range answers {
		a := &answers[i]
		tries = tries || a.tried != nil
		if len(a.Limits) > 0 && a.Source != sash.FromStore && a.Source != sash.FromCache {
			return
		}
		if a.Refused && !a.Soft() {
			refused++
		}
	}
	if !tries {
		return
	}
	if by, ok := store.(*failover.Store); ok {
		var err error
		if store, err = by.With(failover.Modes{}); err != nil {
			return
		}
	}
	for i := range answers {
		a := &answers[i]
		t := a.tried
		switch {
		case t == nil || a.Replaced:
			continue
		case t.Enforced(a.Key):
			c := *a
			c.Metric, c.Enforced = config.CandidateMetric(a.Metric), true
			a.Candidate = &c
			continue
		}
		others := refused
		if a.Refused {
			others--
		}
		// Without a rule it is closed, and so an error, while the store is not there.
		c := &Answer{Metric: config.CandidateMetric(a.Metric), Key: config.CandidateKey(a.Key), Units: a.Units}
		ask := &asked{
			answer: c, refund: parts[i].Refund, limits: t.Limits, limiter: t.limiter,
			req: driver.Request{Key: c.Key, Cost: max(a.Units, -a.Units), Policy: t.policy},
		}
		for _, l := range t.Limits {
			ask.tooLarge = ask.tooLarge || ask.req.Cost > l.Units
		}
		run := &run{store: store}
		decide := run.alone
		if ask.refund {
			decide = run.giveBack
		}
		if decide(ctx, ask, others == 0 || how == Each) != nil {
			return
		}
		c.Rule, a.Candidate = a.Rule, c
	}
}
