// Package decide answers requests by a configuration and a store: what every protocol of the service
// asks.
package decide

import (
	"context"
	"errors"
	"fmt"

	"example.com/sash"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/verdict"
)

// A Decider decides. It is safe for concurrent use.
type Decider struct {
	config   *config.Config
	limiters map[*config.Rule]*sash.Limiter
}

// New returns a decider over a store, which stays the caller's.
func New(cfg *config.Config, store sash.Store) (*Decider, error) {
	d := &Decider{config: cfg, limiters: make(map[*config.Rule]*sash.Limiter)}
	for _, rule := range cfg.Rules() {
		limiter, err := sash.New(store, &rule.Options, rule.Limits...)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", rule, err)
		}
		d.limiters[rule] = limiter
	}
	return d, nil
}

// Decide asks for cost units; a nil cost is that of the matching rule. Errors are
// config.ErrUnknownDomain and those of sash.Limiter.AllowN.
func (d *Decider) Decide(ctx context.Context, domain string, entries []config.Entry, cost *int64) (verdict.Verdict, error) {
	rule, err := d.config.Match(domain, entries)
	if err != nil {
		return verdict.Verdict{}, err
	}
	if cost != nil && *cost < 1 {
		return verdict.Verdict{}, fmt.Errorf("%w: %d units; a cost is at least 1", sash.ErrInvalidCost, *cost)
	}
	if rule == nil {
		return verdict.Unlimited(), nil
	}
	units := rule.Cost
	if cost != nil {
		units = *cost
	}
	res, err := d.limiters[rule].AllowN(ctx, config.Key(domain, entries), units)
	if rule.Shadow && (errors.Is(err, sash.ErrCostAboveLimit) || errors.Is(err, sash.ErrUnavailable)) {
		v := verdict.Unlimited() // a rule that is tried out stops nothing
		v.Shadow = true
		return v, nil
	}
	if err != nil {
		return verdict.Verdict{}, err
	}
	v := verdict.Of(res)
	if rule.Shadow {
		v.Shadow, v.Allowed = true, true
	}
	return v, nil
}
