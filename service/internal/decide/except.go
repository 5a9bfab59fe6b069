package decide

import (
	"fmt"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/verdict"
)

// An Exception is what an operator says of one subject for a while, in place of its rule: other limits, or
// that it is banned.
type Exception struct {
	// Domain and Entries are those of the requests that are meant: these entries and no others. Values that a
	// rule charges together (share_threshold) are meant together where the value is that of the rule, with
	// its *, and one by one otherwise.
	Domain  string
	Entries []config.Entry
	// Limits are what holds instead of the rule's. None is a ban.
	Limits []sash.Limit
	// Until is when it ends.
	Until time.Time
}

// A standing is the exceptions of one subject.
type standing struct {
	banned   time.Time // until when; zero is not at all
	override hold
	until    time.Time // of the override
}

// A hold is what a request is held to: the limits of its rule, or what an operator put in their place.
type hold struct {
	banned  time.Duration // for how much longer; zero is not at all
	limits  []sash.Limit
	limiter *sash.Limiter // nil, and so is policy, where there are no limits and where one has no units
	policy  *driver.Policy
	tried   *tried // the candidate of the rule, also where it is what is held to; nil is none, and beside an override
}

// Except makes these exceptions hold from now on, and no others. One that ends need not be taken away.
func (d *Decider) Except(all []Exception) {
	d.changing.Lock()
	defer d.changing.Unlock()
	d.excepted = all
	s := *d.current.Load()
	s.except(d.store, all)
	d.current.Store(&s)
}

// except puts exceptions into a snapshot that nobody uses yet. An override that does not fit, because the
// configuration changed, leaves its subject to the rule: see CheckException.
func (s *snapshot) except(store driver.Store, all []Exception) {
	s.exceptions = nil
	if len(all) > 0 {
		s.exceptions = make(map[string]*standing, len(all))
	}
	for _, e := range all {
		key := config.Key(e.Domain, e.Entries)
		st := s.exceptions[key]
		if st == nil {
			st = &standing{}
			s.exceptions[key] = st
		}
		if len(e.Limits) == 0 {
			st.banned = e.Until
			continue
		}
		if h, err := s.override(store, e); err == nil {
			st.override, st.until = h, e.Until
		}
	}
}

// override makes what an exception puts in its rule's place. The algorithm stays, so that what was charged counts.
func (s *snapshot) override(store driver.Store, e Exception) (hold, error) {
	found, err := s.config.Find(e.Domain, e.Entries)
	if err != nil {
		return hold{}, err
	}
	rule := found.Rule
	if rule == nil {
		return hold{}, fmt.Errorf("%w: no descriptor of the configuration matches these entries", ErrNotLimited)
	}
	h := hold{limits: e.Limits}
	if h.policy, err = sash.NewPolicy(&rule.Options, e.Limits...); err != nil {
		return hold{}, err
	}
	for _, l := range e.Limits {
		if rule.Cost > l.Units {
			return hold{}, fmt.Errorf("%w: the cost of %d units that the descriptor has can never fit into %s", sash.ErrInvalidLimit, rule.Cost, l)
		}
	}
	if store, err = storeOf(store, rule); err != nil {
		return hold{}, err
	}
	h.limiter, err = sash.New(store, &rule.Options, e.Limits...)
	return h, err
}

// CheckException says what is wrong with an exception under the configuration in use: errors are
// config.ErrUnknownDomain, and for an override ErrNotLimited, and sash.ErrInvalidLimit for limits that the
// rule's algorithm cannot count. An override that no longer passes has no effect.
func (d *Decider) CheckException(e Exception) error {
	s := d.current.Load()
	if len(e.Limits) > 0 {
		_, err := s.override(d.store, e)
		return err
	}
	_, err := s.config.Find(e.Domain, e.Entries)
	return err
}

// hold returns what a request is held to. Without exceptions it looks up the rule's limits and no more.
func (s *snapshot) hold(domain string, entries []config.Entry, found config.Found) hold {
	var h hold
	if rule := found.Rule; rule != nil && !rule.Unlimited {
		h = hold{limits: rule.Limits, limiter: s.limiters[rule], policy: s.policies[rule]}
		h.try(s.tried[rule], found.Key)
	}
	if len(s.exceptions) == 0 {
		return h
	}
	now, overridden := time.Now(), false
	keys := [2]string{config.Key(domain, entries), found.Key} // they differ where values are charged together
	for i, key := range keys {
		st := s.exceptions[key]
		if st == nil || i == 1 && key == keys[0] {
			continue
		}
		if !overridden && found.Rule != nil && now.Before(st.until) {
			banned := h.banned
			h, overridden = st.override, true
			h.banned = banned
		}
		h.banned = max(h.banned, st.left(now))
	}
	return h
}

// left returns for how much longer the subject is banned.
func (st *standing) left(now time.Time) time.Duration {
	if st.banned.IsZero() {
		return 0
	}
	return max(0, st.banned.Sub(now))
}

// ban fills in the answer to a subject that is banned.
func (a *Answer) ban(left time.Duration) {
	left = max(left.Truncate(time.Microsecond), time.Microsecond)
	by := sash.LimitResult{
		Key: a.Key, Limit: sash.Limit{Name: verdict.Ban}, Refused: true,
		RetryAfter: left, ReleaseAfter: left, ResetAfter: left,
	}
	a.Banned, a.Refused, a.RefusedBy, a.Limits = true, true, by, []sash.LimitResult{by}
}
