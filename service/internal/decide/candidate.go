package decide

import (
	"context"

	"example.com/sash"
	"example.com/sash/service/internal/config"
)

// A candidate is the limits that are tried beside a rule's, both for the subjects that it limits and for the others.
type candidate struct {
	*config.Candidate
	enforced *limits
	compared *limits // on a store that does not answer in place of Redis
}

// compileCandidate makes a rule's candidate ready for use; nil when it has none.
func (d *Decider) compileCandidate(rule *config.Rule) (*candidate, error) {
	c := rule.Candidate
	if c == nil {
		return nil, nil
	}
	place := rule.Place.For(c.Limits, c.Options)
	enforced, err := d.compileLimits(place, &c.Options, c.Limits, rule.OnUnavailable)
	if err != nil {
		return nil, err
	}
	compared := *enforced
	if compared.store, err = d.closed(place); err != nil {
		return nil, err
	}
	return &candidate{c, enforced, &compared}, nil
}

// enforced returns the limits that apply to a subject: the rule's, or its candidate's.
func (l *limits) enforced(key string) *limits {
	if c := l.candidate; c != nil && c.Enforced(key) {
		return c.enforced
	}
	return l
}

// compare gives each answer that of its rule's candidate: what it decided, or, where it is not enforced, would have
// decided. That is found on a key of its own, which is charged as if the candidate were the only limit of the rule:
// whatever the rule decided, and only when no other part refused the request. It is one more call to the
// store, within the store's budget, and left out when that does not decide: what is tried out must stop no request.
func (d *Decider) compare(ctx context.Context, answers []Answer) {
	refused, some := 0, false
	for i := range answers {
		a := &answers[i]
		some = some || a.candidate != nil
		if len(a.Limits) > 0 && a.Source != sash.FromStore && a.Source != sash.FromCache && a.Source != sash.FromLease {
			return
		}
		if !a.Allowed() {
			refused++
		}
	}
	if !some {
		return
	}
	for i := range answers {
		a := &answers[i]
		switch {
		case a.candidate == nil || a.Replaced:
			continue
		case a.limits == a.candidate.enforced:
			c := *a
			c.Metric, c.Enforced = config.CandidateMetric(a.Metric), true
			a.Candidate = &c
			continue
		}
		others := refused
		if a.Refused {
			others--
		}
		// Without a rule it does not bind.
		c := &Answer{
			Metric: config.CandidateMetric(a.Metric), Key: config.CandidateKey(a.Key), Cost: a.Cost,
			limits: a.candidate.compared, need: max(a.Cost, -a.Cost), refund: a.refund, always: a.always,
		}
		c.never = c.limits.fits(c.need) != nil
		charge, gives := c.alone, c.limits.refunds(a.Rule)
		if c.refund {
			charge = func(ctx context.Context, charge bool) error { return d.giveBack(ctx, c, charge && gives) }
		}
		if charge(ctx, others == 0) != nil {
			return
		}
		c.insist(ctx, others == 0)
		c.Rule, a.Candidate = a.Rule, c
	}
}
