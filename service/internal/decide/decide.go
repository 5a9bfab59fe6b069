// Package decide answers requests by a configuration and a store: what every protocol of the service
// asks.
package decide

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/verdict"
)

// A Decider decides. It is safe for concurrent use.
type Decider struct {
	store     driver.Store
	instance  string // tells this process from others
	current   atomic.Pointer[snapshot]
	observers []Observer

	changing sync.Mutex  // held while current is made anew
	excepted []Exception // guarded by changing
}

// A snapshot is a configuration with what the store needs of it.
type snapshot struct {
	store    driver.Store
	config   *config.Config
	limiters map[*config.Rule]*sash.Limiter
	policies map[*config.Rule]*driver.Policy
	tried    map[*config.Rule]*tried // of rules that have a candidate
	// exceptions are by the key of their subject. Nil, which costs a request nothing, is none.
	exceptions map[string]*standing
}

// New returns a decider over a store, which stays the caller's.
func New(cfg *config.Config, store driver.Store) (*Decider, error) {
	d := &Decider{store: store, instance: rand.Text()}
	return d, d.Use(cfg)
}

// Use changes the configuration. Requests that are being decided end under the one before. After an
// error the configuration is unchanged.
func (d *Decider) Use(cfg *config.Config) error {
	s := &snapshot{
		store:    d.store,
		config:   cfg,
		limiters: make(map[*config.Rule]*sash.Limiter),
		policies: make(map[*config.Rule]*driver.Policy),
		tried:    make(map[*config.Rule]*tried),
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
		if err := s.try(store, rule); err != nil {
			return fmt.Errorf("%s: the candidate: %w", rule, err)
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
	return d.DecideOnce(ctx, "", domain, entries, cost)
}

// DecideOnce is Decide for a request that may be repeated under its ID, 1 to MaxIDLength bytes: what was
// admitted is charged once within sash.RepeatTime, and answered alike. The same ID with another cost is another
// request. No ID is Decide.
func (d *Decider) DecideOnce(ctx context.Context, id, domain string, entries []config.Entry, cost *int64) (verdict.Verdict, error) {
	return d.observed(ctx, domain, entries, cost, func(h hold, a *Answer) (verdict.Verdict, error) {
		var res sash.Result
		var err error
		if id == "" {
			res, err = h.limiter.AllowN(ctx, a.Key, a.Units)
		} else {
			res, err = h.limiter.AllowOnce(ctx, nameOf("allow", h.limits, a.Units)+id, a.Key, a.Units)
		}
		if err != nil {
			return verdict.Verdict{}, err
		}
		a.tell(res)
		return verdict.Of(res), nil
	})
}

// nameOf begins the store's ID of a call. It has the number of limits, because a store may fail to answer a
// repetition under another one, which would look as if the store was broken, and the units, because the store would
// answer as it did whatever they are: an ID that was charged for 1 would let 1,000 through. Such a call is a new one.
func nameOf(verb string, limits []sash.Limit, units int64) string {
	return verb + strconv.Itoa(len(limits)) + ":" + strconv.FormatInt(units, 10) + ":"
}

// An asker asks the store for an answer's subject and units, and fills the answer in.
type asker func(hold, *Answer) (verdict.Verdict, error)

// observed decides a request, and tells observers.
func (d *Decider) observed(ctx context.Context, domain string, entries []config.Entry, cost *int64, ask asker) (verdict.Verdict, error) {
	began := time.Now()
	parts, answers := []Part{{Entries: entries}}, make([]Answer, 1)
	v, err := d.current.Load().decide(domain, entries, cost, &answers[0], ask)
	parts[0].Units = answers[0].Units
	if err == nil {
		watch(ctx, d.store, parts, answers, Together)
	}
	d.observe(ctx, Observation{Domain: domain, Parts: parts, Answers: answers, Allowed: v.Allowed, Err: err, Began: began})
	return v, err
}

// decide finds the rule of a request and asks by it.
func (s *snapshot) decide(domain string, entries []config.Entry, cost *int64, answer *Answer, ask asker) (verdict.Verdict, error) {
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
	answer.tried = h.tried
	var v verdict.Verdict
	if err = fits(h.limits, answer.Units); err == nil {
		v, err = ask(h, answer)
	}
	if answer.Soft() && (errors.Is(err, sash.ErrCostAboveLimit) || errors.Is(err, sash.ErrUnavailable)) {
		v = verdict.Unlimited() // a rule that is tried out stops nothing
		if errors.Is(err, sash.ErrUnavailable) {
			v = verdict.Undecided(err)
			answer.Source, answer.Cause = sash.FromPolicy, err
		}
		v.Shadow, answer.Refused = true, errors.Is(err, sash.ErrCostAboveLimit)
		return v, nil
	}
	if err != nil {
		return verdict.Verdict{}, err
	}
	if answer.Soft() {
		v.Shadow, v.Allowed = true, true
	}
	return v, nil
}

// fits returns sash.ErrCostAboveLimit for a cost that limits can never admit.
func fits(limits []sash.Limit, cost int64) error {
	for _, l := range limits {
		if cost > l.Units {
			return fmt.Errorf("%w: a cost of %d units can never fit into %s", sash.ErrCostAboveLimit, cost, cmp.Or(l.Name, l.String()))
		}
	}
	return nil
}
