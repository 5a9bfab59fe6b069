package decide

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/service/internal/config"
)

// A Part is one of several questions that a request asks at once: a descriptor of Envoy's.
type Part struct {
	Entries []config.Entry
	// Units asked for. Zero only looks.
	Units int64
	// Refund gives the units back instead of asking for them.
	Refund bool
	// Override is a limit that the request brings, instead of the configuration's. Nil is none. One of no
	// units refuses everything.
	Override *sash.Limit
}

// An Answer is what became of a Part.
type Answer struct {
	// Rule is the rule that matched; nil when none did or the request brought its limit.
	Rule *config.Rule
	// Metric names the rule in statistics; empty when nothing limits the part.
	Metric string
	// Limits is each limit's part of the answer; empty when nothing limits the part, or the store need not
	// be asked.
	Limits []sash.LimitResult
	// Refused says that a limit of this part had no room, also where that does not bind.
	Refused bool
	// RefusedBy is the limit that refused.
	RefusedBy sash.LimitResult
	// Banned says that an operator has banned the subject: RefusedBy is called verdict.Ban, and nothing was charged.
	Banned bool
	// Replaced says that another part's rule replaces this one's.
	Replaced bool
	// Units is what was asked for; negative for a refund.
	Units int64
	// Key is the subject that the part is charged to, as the configuration names it; for people and observers.
	Key string
	// Source is where the answer came from, and Cause why it was not the store: see sash.Result. Where Limits
	// is empty it is sash.FromPolicy when the store failed, and tells nothing otherwise.
	Source sash.Source
	Cause  error
	// Candidate is what the limits that are tried beside the rule's did, or would have done: see config.Candidate.
	// Nil when there are none, or that is not known. Enforced says, of a candidate, that they were those that the
	// part was held to: then the two answers are the same.
	Candidate *Answer
	Enforced  bool

	tried *tried // the candidate beside what the part was held to; nil is none
}

// Soft reports whether a refusal of the part does not bind: shadow_mode and quota_mode. A ban always does.
func (a *Answer) Soft() bool { return a.Rule != nil && (a.Rule.Shadow || a.Rule.Quota) && !a.Banned }

// Tightest returns the limit with the fewest units left; false when there is none.
func (a *Answer) Tightest() (sash.LimitResult, bool) {
	if len(a.Limits) == 0 {
		return sash.LimitResult{}, false
	}
	tightest := a.Limits[0]
	for _, l := range a.Limits[1:] {
		if l.Remaining < tightest.Remaining {
			tightest = l
		}
	}
	return tightest, true
}

// Charging says who pays for a request that is refused.
type Charging uint8

// Ways of charging.
const (
	// Together charges all parts or none. The default.
	Together Charging = iota
	// Each decides every part by itself, and charges those that have room although another refused, as
	// Envoy's rate limit service does.
	Each
)

// An asked is a part that a limit applies to.
type asked struct {
	answer   *Answer
	refund   bool
	req      driver.Request // its Policy is nil for a limit of no units
	limits   []sash.Limit
	limiter  *sash.Limiter // nil where req.Policy is
	tooLarge bool          // can never be admitted
}

// DecideParts answers several questions at once. The parts that bind are charged when all of them have room,
// and none is otherwise: see Charging. Parts that do not bind are charged, each by itself, when the others
// were admitted. A domain that is not configured limits nothing.
//
// Up to sash.MaxSubjects parts of one algorithm and resolution are one atomic step in memory, on one Redis
// server, and on a cluster where they share a slot. What is more is decided step by step in the order of the
// request, and given back when a later step refuses: no limit is ever exceeded, but until it is given back
// it is missing to others.
//
// Errors are sash.ErrInvalidLimit for an override that cannot be enforced, sash.ErrUnavailable, and the
// context's.
func (d *Decider) DecideParts(ctx context.Context, domain string, parts []Part, how Charging) ([]Answer, error) {
	began := time.Now()
	answers := make([]Answer, len(parts))
	current := d.current.Load()
	err := d.decideParts(ctx, current, domain, parts, how, answers)
	if err == nil {
		watch(ctx, d.store, parts, answers, how)
	}
	d.observe(ctx, Observation{
		Domain: domain, Parts: parts, Answers: answers, Allowed: err == nil && allowed(answers), Err: err, Began: began,
	})
	if err != nil {
		return nil, err
	}
	return answers, nil
}

func (d *Decider) decideParts(ctx context.Context, current *snapshot, domain string, parts []Part, how Charging, answers []Answer) error {
	asks, err := current.ask(domain, parts, answers)
	if err != nil || len(asks) == 0 {
		return err
	}
	var binding, soft, refunds []*asked
	for i := range asks {
		switch a := &asks[i]; {
		case a.refund:
			refunds = append(refunds, a)
		case a.answer.Soft() || how == Each:
			soft = append(soft, a)
		default:
			binding = append(binding, a)
		}
	}
	run := &run{store: d.store}
	admitted, err := run.together(ctx, binding)
	if err != nil {
		return failure(ctx, err)
	}
	for _, a := range soft {
		if err := run.alone(ctx, a, admitted); err != nil {
			if ctx.Err() != nil || !a.answer.Soft() {
				return failure(ctx, err)
			}
			a.answer.Source, a.answer.Cause = sash.FromPolicy, err // a rule that is tried out stops nothing
		}
	}
	for _, a := range refunds {
		if err := run.giveBack(ctx, a, admitted); err != nil {
			return failure(ctx, err)
		}
	}
	return nil
}

// ask finds what each part is held to, and fills in the answers that need no store.
func (s *snapshot) ask(domain string, parts []Part, answers []Answer) ([]asked, error) {
	asks := make([]asked, 0, len(parts))
	var replaced []string
	for i, part := range parts {
		answer := &answers[i]
		answer.Units = part.Units
		if part.Refund {
			answer.Units = -part.Units
		}
		found, err := s.config.Find(domain, part.Entries)
		if errors.Is(err, config.ErrUnknownDomain) {
			return nil, nil
		}
		h := s.hold(domain, part.Entries, found)
		if h.banned > 0 && !part.Refund {
			answer.Rule, answer.Metric, answer.Key = found.Rule, found.Metric, cmp.Or(found.Key, config.Key(domain, part.Entries))
			answer.ban(h.banned)
			asks = append(asks, asked{answer: answer, tooLarge: true})
			continue
		}
		if part.Override != nil {
			a, err := s.bring(domain, part, answer)
			if err != nil {
				return nil, err
			}
			asks = append(asks, a)
			continue
		}
		rule := found.Rule
		if rule == nil {
			continue
		}
		answer.Rule, answer.Metric, answer.Key = rule, found.Metric, found.Key
		replaced = append(replaced, rule.Replaces...)
		if len(h.limits) == 0 {
			continue
		}
		answer.tried = h.tried
		asks = append(asks, asked{
			answer: answer, refund: part.Refund, limits: h.limits, limiter: h.limiter,
			req: driver.Request{Key: found.Key, Cost: part.Units, Policy: h.policy},
		})
	}
	asks = slices.DeleteFunc(asks, func(a asked) bool {
		rule := a.answer.Rule
		gone := rule != nil && !a.answer.Banned && rule.Name != "" && slices.Contains(replaced, rule.Name)
		if gone {
			a.answer.Replaced = true
		}
		return gone
	})
	for i := range asks {
		a := &asks[i]
		a.tooLarge = a.req.Policy == nil || slices.ContainsFunc(a.limits, func(l sash.Limit) bool { return a.req.Cost > l.Units })
	}
	return asks, nil
}

// bring makes the question for a limit that the request brings. Its metric has no values of the request.
func (s *snapshot) bring(domain string, part Part, answer *Answer) (asked, error) {
	a := asked{answer: answer, refund: part.Refund, limits: []sash.Limit{*part.Override}}
	a.req = driver.Request{Key: config.Key(domain, part.Entries), Cost: part.Units}
	answer.Key = a.req.Key
	answer.Metric = domain
	for _, e := range part.Entries {
		answer.Metric += "." + e.Key
	}
	if part.Override.Units == 0 {
		return a, nil
	}
	var opts sash.Options
	err := config.Fit(&opts, a.limits)
	if err == nil {
		a.limiter, err = sash.New(s.store, &opts, a.limits...)
	}
	if err != nil {
		return asked{}, fmt.Errorf("the limit that the request brings: %w", err)
	}
	a.req.Policy = a.limiter.Policy()
	return a, nil
}

// failure tells a caller that gave up from a store that failed.
func failure(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%w (%v)", ctx.Err(), err)
	case errors.Is(err, sash.ErrUnavailable), errors.Is(err, sash.ErrUnsupported):
		return err
	}
	return &sash.StoreError{Err: err}
}
