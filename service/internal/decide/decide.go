// Package decide answers requests by a configuration and a store: what every protocol of the service
// asks.
package decide

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"example.com/sash"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/verdict"
)

// A Decider decides. It is safe for concurrent use.
type Decider struct {
	store     sash.Store
	current   atomic.Pointer[snapshot]
	observers []Observer

	changing sync.Mutex  // held while current is made anew
	excepted []Exception // guarded by changing
}

// A snapshot is a configuration with what the store needs of it.
type snapshot struct {
	config   *config.Config
	limiters map[*config.Rule]*sash.Limiter
	policies map[*config.Rule]*sash.Policy
	// exceptions are by the key of their subject. Nil, which costs a request nothing, is none.
	exceptions map[string]*standing
}

// New returns a decider over a store, which stays the caller's.
func New(cfg *config.Config, store sash.Store) (*Decider, error) {
	d := &Decider{store: store}
	return d, d.Use(cfg)
}

// Use changes the configuration. Requests that are being decided end under the one before. After an
// error the configuration is unchanged.
func (d *Decider) Use(cfg *config.Config) error {
	s := &snapshot{
		config:   cfg,
		limiters: make(map[*config.Rule]*sash.Limiter),
		policies: make(map[*config.Rule]*sash.Policy),
	}
	for _, rule := range cfg.Rules() {
		if !rule.Limited() {
			continue
		}
		store, err := storeOf(d.store, rule)
		if err != nil {
			return fmt.Errorf("%s: %w", rule, err)
		}
		limiter, err := sash.New(store, &rule.Options, rule.Limits...)
		if err != nil {
			return fmt.Errorf("%s: %w", rule, err)
		}
		s.limiters[rule] = limiter
		if s.policies[rule], err = sash.NewPolicy(&rule.Options, rule.Limits...); err != nil {
			return fmt.Errorf("%s: %w", rule, err)
		}
	}
	d.changing.Lock()
	defer d.changing.Unlock()
	s.except(d.store, d.excepted)
	d.current.Store(s)
	return nil
}

// Config returns the configuration in use.
func (d *Decider) Config() *config.Config { return d.current.Load().config }

// Decide asks for cost units; a nil cost is that of the matching rule. Errors are
// config.ErrUnknownDomain and those of sash.Limiter.AllowN.
func (d *Decider) Decide(ctx context.Context, domain string, entries []config.Entry, cost *int64) (verdict.Verdict, error) {
	began := time.Now()
	parts, answers := []Part{{Entries: entries}}, make([]Answer, 1)
	v, err := d.current.Load().decide(ctx, domain, entries, cost, &answers[0])
	parts[0].Units = answers[0].Units
	d.observe(ctx, Observation{Domain: domain, Parts: parts, Answers: answers, Allowed: v.Allowed, Err: err, Began: began})
	return v, err
}

// decide decides, and fills in the answer for observers.
func (s *snapshot) decide(ctx context.Context, domain string, entries []config.Entry, cost *int64, answer *Answer) (verdict.Verdict, error) {
	found, err := s.config.Find(domain, entries)
	if err != nil {
		return verdict.Verdict{}, err
	}
	if cost != nil && *cost < 1 {
		return verdict.Verdict{}, fmt.Errorf("%w: %d units; a cost is at least 1", sash.ErrInvalidCost, *cost)
	}
	rule := found.Rule
	answer.Rule, answer.Metric, answer.Key = rule, found.Metric, found.Key
	if cost != nil {
		answer.Units = *cost
	} else if rule != nil {
		answer.Units = rule.Cost
	}
	h := s.hold(domain, entries, found)
	if h.banned > 0 {
		answer.Key = cmp.Or(found.Key, config.Key(domain, entries))
		answer.ban(h.banned)
		return verdict.Banned(answer.RefusedBy.RetryAfter), nil
	}
	if len(h.limits) == 0 {
		return verdict.Unlimited(), nil
	}
	var res sash.Result
	if h.limiter == nil {
		err = fmt.Errorf("%w: a cost of %d units can never fit into %s", sash.ErrCostAboveLimit, answer.Units, h.limits[0])
	} else {
		res, err = h.limiter.AllowN(ctx, found.Key, answer.Units)
	}
	if answer.Soft() && (errors.Is(err, sash.ErrCostAboveLimit) || errors.Is(err, sash.ErrUnavailable)) {
		v := verdict.Unlimited() // a rule that is tried out stops nothing
		if errors.Is(err, sash.ErrUnavailable) {
			v = verdict.Undecided(err)
		}
		v.Shadow, answer.Refused = true, errors.Is(err, sash.ErrCostAboveLimit)
		return v, nil
	}
	if err != nil {
		return verdict.Verdict{}, err
	}
	answer.tell(res)
	v := verdict.Of(res)
	if answer.Soft() {
		v.Shadow, v.Allowed = true, true
	}
	return v, nil
}
