package decide

import (
	"fmt"
	"time"

	"example.com/sash"
	"example.com/sash/service/internal/config"
)

// Ban is the name of what refuses a banned subject, where others have a limit's.
const Ban = "ban"

// An Exception is what an operator puts in the place of one subject's rule for a while: other limits, or a ban.
type Exception struct {
	// Domain and Entries are those of the requests that are meant. An override means requests with these entries and no
	// others; a ban means all that begin with them, and a network among its values means every address and network
	// within it. Values that a rule charges together (share_threshold) are meant together where the value is that of
	// the rule, with its *, and one by one otherwise.
	Domain  string
	Entries []config.Entry
	// Limits are what holds instead of the rule's. None is a ban.
	Limits []sash.Limit
	// Until is when it ends.
	Until time.Time
}

// An override is an exception with its limits ready for use.
type override struct {
	limits *limits
	by     *Exception
}

// Except makes these exceptions hold from now on, and no others. One that ends need not be taken away.
func (d *Decider) Except(all []Exception) {
	d.changing.Lock()
	defer d.changing.Unlock()
	d.excepted = all
	r := *d.rules.Load()
	d.except(&r, all)
	d.rules.Store(&r)
}

// except puts exceptions into rules that are not in use yet. An override that no longer fits, because the
// configuration changed, leaves its subject to the rule: see CheckException. A ban holds under every configuration.
func (d *Decider) except(r *rules, all []Exception) {
	r.overrides, r.bans = nil, nil
	for i := range all {
		e := &all[i]
		if len(e.Limits) == 0 {
			tree := child(&r.bans, e.Domain)
			tree.insert(e, false)
			tree.insert(e, true)
			continue
		}
		l, err := d.compileOverride(r, *e)
		if err != nil {
			continue
		}
		if r.overrides == nil {
			r.overrides = make(map[string]*override)
		}
		r.overrides[config.Key(e.Domain, e.Entries)] = &override{l, e}
	}
}

// compileOverride makes the limits that an exception puts in its rule's place ready for use. The algorithm stays the
// rule's, so that what was charged counts.
func (d *Decider) compileOverride(r *rules, e Exception) (*limits, error) {
	found, err := r.config.Find(e.Domain, e.Entries)
	if err != nil {
		return nil, err
	}
	rule := found.Rule
	if rule == nil {
		return nil, fmt.Errorf("%w: no descriptor of the configuration matches these entries", ErrNotLimited)
	}
	l, err := d.compileLimits(rule.Place.For(e.Limits, rule.Options), &rule.Options, e.Limits, rule.OnUnavailable)
	if err != nil {
		return nil, err
	}
	for _, limit := range e.Limits {
		if rule.Cost > limit.Units {
			return nil, fmt.Errorf("%w: the cost of %d units that the descriptor has can never fit into %s", sash.ErrInvalidLimit, rule.Cost, limit)
		}
	}
	return l, nil
}

// CheckException returns what is wrong with an exception under the configuration in use: errors are
// config.ErrUnknownDomain; for a ban config.ErrNoDescriptor, if no request that the configuration counts can begin with
// its entries, or a value looks like a network and is none; for an override ErrNotLimited, and sash.ErrInvalidLimit for
// limits that the rule's algorithm cannot count. An override that no longer passes has no effect.
func (d *Decider) CheckException(e Exception) error {
	r := d.rules.Load()
	if len(e.Limits) > 0 {
		_, err := d.compileOverride(r, e)
		return err
	}
	if err := r.config.Reach(e.Domain, e.Entries); err != nil {
		return err
	}
	return checkNetworks(r.config, e.Domain, e.Entries)
}

// ban fills in the answer to a request that a ban refuses.
func (a *Answer) ban(by *Exception) {
	left := max(time.Until(by.Until).Truncate(time.Microsecond), time.Microsecond)
	a.BannedBy, a.never = by, true
	a.answerBy(sash.Limit{Name: Ban}, true, left)
}
