package decide

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/service/internal/config"
)

// rules are a configuration ready for use, with its exceptions. They do not change.
type rules struct {
	config *config.Config
	limits map[*config.Rule]*limits // for rules with limits
	// overrides are by the key of their subject, and bans by their domain. A nil map has none, and costs a request nothing.
	overrides map[string]*override
	bans      map[string]*banTree
}

// limits are the limits that apply to a subject, checked and ready for the store.
type limits struct {
	named   []sash.Limit
	opts    sash.Options
	limiter *sash.Limiter // nil for a limit of no units, which refuses everything
	plain   *sash.Limiter // the same without count_refused: charges only what fits, and takes refunds
	store   driver.Store  // the store of the limiters, which applies modes while Redis is unavailable
	modes   failover.Modes
	place   config.Place
	// candidate is the rule's candidate; nil is none.
	candidate *candidate
}

func (d *Decider) compile(cfg *config.Config) (*rules, error) {
	r := &rules{config: cfg, limits: make(map[*config.Rule]*limits)}
	for _, rule := range cfg.Rules() {
		switch {
		case rule.Unlimited:
			continue
		case rule.Refuses:
			r.limits[rule] = &limits{named: rule.Limits}
			continue
		}
		l, err := d.compileLimits(rule.Place, &rule.Options, rule.Limits, rule.OnUnavailable)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", rule.Line, rule, err)
		}
		if l.candidate, err = d.compileCandidate(rule); err != nil {
			return nil, fmt.Errorf("%s: the candidate: %w", rule, err)
		}
		r.limits[rule] = l
	}
	return r, nil
}

// compileLimits makes limits ready for use. The error is sash.ErrInvalidLimit, or says that the place has no store.
func (d *Decider) compileLimits(place config.Place, opts *sash.Options, named []sash.Limit, modes failover.Modes) (*limits, error) {
	store, err := d.storeBy(place, modes)
	if err != nil {
		return nil, err
	}
	l := &limits{named: named, opts: *opts, store: store, modes: modes, place: place}
	if l.limiter, err = sash.New(store, opts, named...); err != nil {
		return nil, err
	}
	if l.plain = l.limiter; opts.CountRefused {
		plain := *opts
		plain.CountRefused = false
		l.plain, err = sash.New(store, &plain, named...)
	}
	return l, err
}

// Stores returns the store of a place: always the same store for the same place. The Decider calls it for every rule
// when it takes a configuration, and when it settles reservations. The error says why there is no such store.
type Stores func(config.Place) (driver.Store, error)

// storeBy returns the store of a place with failure modes, if it has any. For limits over all regions, closed replaces local.
func (d *Decider) storeBy(place config.Place, modes failover.Modes) (driver.Store, error) {
	store, err := d.stores(place)
	if err != nil {
		return nil, err
	}
	if place.Global { // an instance has no share of a limit over all regions, and the store itself has the region's own share
		modes.Rules = slices.Clone(modes.Rules)
		for i := range modes.Rules {
			if modes.Rules[i].Mode == failover.Local {
				modes.Rules[i].Mode = failover.Closed
			}
		}
	}
	if store, ok := store.(*failover.Store); ok {
		return store.With(modes)
	}
	return store, nil
}

// compileOwn is compileLimits for limits in a request. While the store is unavailable there is no decision.
func (d *Decider) compileOwn(place config.Place, opts sash.Options, own []sash.Limit) (*limits, error) {
	if err := config.Fit(&opts, own); err != nil {
		return nil, err
	}
	return d.compileLimits(place.For(own, opts), &opts, own, failover.Modes{})
}

// fits returns sash.ErrCostAboveLimit for a cost that the limits can never admit.
func (l *limits) fits(cost int64) error {
	for _, limit := range l.named {
		if cost > limit.Units {
			return fmt.Errorf("%w: a cost of %d units can never fit into %s", sash.ErrCostAboveLimit, cost, cmp.Or(limit.Name, limit.String()))
		}
	}
	return nil
}

// refunds reports whether a refund under a rule gives back its own charge and frees no other.
func (l *limits) refunds(rule *config.Rule) bool {
	return rule != nil && l.limiter != nil && config.Refundable(l.named, l.opts, rule.RefundWithin)
}

// resolve finds the limits of each part of a request, and fills in the answers that need no store.
func (d *Decider) resolve(req *Request, answers []Answer) error {
	r := d.rules.Load()
	for i := range req.Parts {
		d.hide(r, req.Domain, &req.Parts[i]) // before anything can fail and be shown
	}
	if err := req.check(); err != nil {
		return err
	}
	var replaced []string
	for i := range answers {
		a := &answers[i]
		err := d.resolvePart(r, req, &req.Parts[i], a)
		if req.Lenient && errors.Is(err, config.ErrUnknownDomain) {
			req.unknown = true
			return nil
		}
		if err != nil {
			return err
		}
		if !req.Lenient && a.Limited() && slices.ContainsFunc(answers[:i], func(b Answer) bool { return b.Limited() && b.Key == a.Key }) {
			return fmt.Errorf("parts[%d]: %w", i, ErrTwice)
		}
		if a.Rule != nil && a.BannedBy == nil && !req.Any {
			replaced = append(replaced, a.Rule.Replaces...)
		}
	}
	for i := range answers {
		if a := &answers[i]; a.limits != nil && a.Rule != nil && a.Rule.Name != "" && slices.Contains(replaced, a.Rule.Name) {
			a.Replaced, a.limits = true, nil
		}
	}
	req.quotas(answers)
	if req.Within > 0 {
		return req.mayWait(&answers[0])
	}
	return nil
}

// mayWait sets how long a part can wait. A part that nothing limits or that does not bind cannot. The error is ErrNoQueue.
func (req *Request) mayWait(a *Answer) error {
	switch {
	case a.limits == nil || a.limits.limiter == nil || a.Soft():
		return nil
	case a.limits.opts.Block.Refusals > 0:
		return fmt.Errorf("%w; this one has block", ErrNoQueue)
	case !a.limits.limiter.Policy().Bookable():
		return fmt.Errorf("%w; this one counts by %v", ErrNoQueue, a.limits.opts.Algorithm)
	}
	longest := config.DefaultMaxWait
	if a.Rule != nil {
		longest = a.Rule.MaxWait
	}
	if req.Book {
		longest = req.Within
	} else {
		a.queue = longest
	}
	a.within = min(req.Within, longest)
	return nil
}

func (req *Request) check() error {
	switch {
	case (req.Any || len(req.Parts) != 1) && (req.Within > 0 || req.ID != ""),
		!req.Lenient && !req.Any && len(req.Parts) > sash.MaxSubjects, req.Any && (len(req.Parts) == 0 || len(req.Parts) > MaxAny):
		return ErrParts
	case len(req.ID) > MaxIDLength:
		return fmt.Errorf("%w: %d bytes, more than %d", sash.ErrInvalidID, len(req.ID), MaxIDLength)
	}
	return nil
}

func (d *Decider) resolvePart(r *rules, req *Request, part *Part, a *Answer) error {
	a.Cost = part.Cost
	found, err := r.find(req.Domain, part)
	if err != nil {
		return err
	}
	a.Rule, a.Metric, a.Key, a.refund = found.Rule, found.Metric, found.Key, part.Refund
	if !part.ByRule && !req.Lenient && part.Cost < 1 {
		return fmt.Errorf("%w: %d units; a cost is at least 1", sash.ErrInvalidCost, part.Cost)
	}
	if part.ByRule && found.Rule != nil {
		a.Cost = found.Rule.Cost
	}
	if a.need = a.Cost; part.Refund {
		a.Cost = -a.Cost
	}
	a.always = part.Always && a.Cost > 0 && (found.Rule == nil || !found.Rule.SparesRefused)
	held, overridden, banned := r.limitsOf(req.Domain, part, found)
	if part.given != nil {
		if held, err = d.compileOwn(config.Place{}, sash.Options{}, part.given); err != nil {
			return err
		}
	}
	switch {
	case banned != nil && !part.Refund:
		a.Key = cmp.Or(found.Key, config.Key(req.Domain, part.Entries))
		a.ban(banned)
		return nil
	case part.RequestLimit != nil:
		return d.requestLimit(req.Domain, part, a, req.Counting != nil)
	case held == nil:
		return nil
	}
	a.limits, a.candidate, a.overridden = held.enforced(found.Key), held.candidate, overridden != nil
	if req.UpTo && a.limits.limiter != nil {
		a.need = min(a.need, a.limits.limiter.Policy().MostUnits())
	}
	if err = a.limits.fits(a.need); err == nil {
		a.never = a.limits.limiter == nil // refuses even a look
		return nil
	}
	a.never = true
	if req.Lenient || req.Any {
		return nil
	}
	if a.limits = nil; !a.Soft() {
		return err
	}
	a.Refused = true
	return nil
}

// requestLimit applies the request limit of a part instead of a rule's limits. It keeps charges where the rule keeps
// them. Its metric contains no values of the request, except under a Counting.
func (d *Decider) requestLimit(domain string, part *Part, a *Answer, counting bool) error {
	if part.unnamed {
		return fmt.Errorf("%w: the request limit: %w", sash.ErrInvalidLimit, ErrNoSecretKeys)
	}
	var place config.Place
	if a.Rule != nil {
		place = a.Rule.Place
	}
	a.Rule, a.Key, a.Metric = nil, config.Key(domain, part.Entries), domain
	for _, e := range part.Entries {
		a.Metric += "." + e.Key
		if counting && e.Value != "" {
			a.Metric += "_" + e.Value
		}
	}
	own := []sash.Limit{*part.RequestLimit}
	if part.RequestLimit.Units == 0 {
		a.limits, a.never = &limits{named: own}, true
		return nil
	}
	defaults := d.Config().Defaults()
	opts := sash.Options{Algorithm: defaults.Algorithm, CountRefused: defaults.CountRefused}
	var err error
	if a.limits, err = d.compileOwn(place, opts, own); err != nil {
		return fmt.Errorf("the request limit: %w", err)
	}
	a.never = a.limits.fits(a.need) != nil
	return nil
}

func (r *rules) excepts() bool { return r.overrides != nil || r.bans != nil }

// limitsOf returns the limits that apply to a part, and the override and the ban that hold; nil is none.
func (r *rules) limitsOf(domain string, part *Part, found config.Found) (held *limits, overridden, banned *Exception) {
	held = r.limits[found.Rule]
	if !r.excepts() {
		return held, nil, nil
	}
	now := time.Now()
	banned = r.bans[domain].find(part.Entries, found.Charged, now, nil)
	o := r.overrideOf(domain, part.Entries, found, now)
	for _, entries := range part.older {
		if found, err := r.config.Find(domain, entries); err == nil {
			banned = r.bans[domain].find(entries, found.Charged, now, banned)
			if o == nil {
				o = r.overrideOf(domain, entries, found, now)
			}
		}
	}
	if o != nil {
		held, overridden = o.limits, o.by
	}
	return held, overridden, banned
}

// overrideOf returns the override of a subject, or nil. One for its own entries comes before one for values that are charged together.
func (r *rules) overrideOf(domain string, entries []config.Entry, found config.Found, now time.Time) *override {
	if r.overrides == nil || found.Rule == nil {
		return nil
	}
	for _, key := range [2]string{config.Key(domain, entries), found.Key} {
		if o := r.overrides[key]; o != nil && now.Before(o.by.Until) {
			return o
		}
	}
	return nil
}

// Given returns a request of one part that contains its limits. Its subject is the key, apart from the subjects of
// every domain: no rule, override or ban applies to it. Its domain is OfRequest. The limits slide, and while the
// store is unavailable there is no decision. A nil cost is 1.
func Given(key string, limits []sash.Limit, cost *int64) Request {
	req := One(OfRequest, []config.Entry{{Key: "key", Value: key}}, cost)
	part := &req.Parts[0]
	if part.given = limits; cost == nil {
		part.Cost = 1
	}
	return req
}

// Subject returns the subject of a request of one part, so that a port can keep order; empty if there is no such domain.
func (d *Decider) Subject(req *Request) string {
	found, _ := d.rules.Load().find(req.Domain, &req.Parts[0])
	return found.Key
}

// find is config.Find, and also finds a part that contains its limits. Such a part has a shorter key than any domain and entries.
func (r *rules) find(domain string, part *Part) (config.Found, error) {
	if part.given != nil {
		return config.Found{Key: sash.Key(OfRequest, part.Entries[0].Value), Metric: OfRequest, Charged: part.Entries}, nil
	}
	return r.config.Find(domain, part.Entries)
}
