package decide

import (
	"context"

	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/service/internal/config"
)

// storeOf returns the store for a rule: where it answers by policy, by the rule's.
func storeOf(store driver.Store, rule *config.Rule) (driver.Store, error) {
	if by, ok := store.(*failover.Store); ok {
		return by.With(rule.OnUnavailable)
	}
	return store, nil
}

// storeFor returns the store for one step over parts of a request. Where it answers by policy the strictest
// mode of the parts counts, each for the units of its request.
func (r *run) storeFor(b *batch) (driver.Store, error) {
	by, ok := r.store.(*failover.Store)
	if !ok {
		return r.store, nil
	}
	mode, local, most := failover.Open, false, int64(1)
	for i, req := range b.reqs {
		most = max(most, req.Cost)
		for _, a := range b.asks[i] {
			var policy failover.Modes // closed, for a limit that the request brings
			if rule := a.answer.Rule; rule != nil {
				policy = rule.OnUnavailable
			}
			mode = min(mode, policy.Mode(req.Cost))
			for _, rule := range policy.Rules {
				local = local || rule.Mode == failover.Local
			}
		}
	}
	policy := failover.Modes{Rules: []failover.Rule{{MaxCost: most, Mode: mode}}}
	if local { // for other costs: what the store admits is charged locally too
		policy.Rules = append(policy.Rules, failover.Rule{Mode: failover.Local})
	}
	return by.With(policy)
}

// ask asks for one part alone.
func (r *run) ask(ctx context.Context, a *asked, req driver.Request) (driver.Answer, error) {
	store, err := r.storeFor(&batch{[]driver.Request{req}, [][]*asked{{a}}})
	if err != nil {
		return driver.Answer{}, err
	}
	return store.Decide(ctx, req)
}
