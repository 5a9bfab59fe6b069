package decide

import (
	"cmp"
	"context"
	"errors"
	"time"

	"example.com/sash"
	"example.com/sash/failover"
	"example.com/sash/service/internal/config"
)

// An Observer is called with every decided request, by the goroutine that decided it. It must be quick and safe for
// concurrent use, and must not keep the observation or its answers.
type Observer func(context.Context, *Observation)

// An Observation is one request with its answers. Its methods classify them.
type Observation struct {
	Domain string
	Port   Port
	Parts  []Part
	// Answers has one element for each part. After an error they hold what is known: rules, but perhaps no limits.
	Answers []Answer
	// Allowed says whether the request may go ahead; false after an error.
	Allowed bool
	// Unknown says that the configuration does not have the domain. A Lenient request is allowed then.
	Unknown bool
	// Err is why there is no decision; nil when there is one.
	Err error
	// Began is when the request came, and Took how long it took.
	Began time.Time
	Took  time.Duration
}

// Observe adds an observer. It must not be called while requests are being decided.
func (d *Decider) Observe(o Observer) { d.observers = append(d.observers, o) }

func (d *Decider) observe(ctx context.Context, req *Request, answers []Answer, err error, began time.Time) {
	if len(d.observers) == 0 {
		return
	}
	o := &Observation{Domain: req.Domain, Port: req.Port, Parts: req.Parts, Answers: answers, Allowed: err == nil, Err: err,
		Unknown: req.unknown || errors.Is(err, config.ErrUnknownDomain), Began: began, Took: time.Since(began)}
	for i := range answers {
		o.Allowed = o.Allowed && answers[i].Allowed()
	}
	for _, observer := range d.observers {
		observer(ctx, o)
	}
}

// An Outcome is the outcome of a request, or of one part of it.
type Outcome uint8

// Outcomes. A part that had room is Allowed even if another part refused the request. A part is Uncounted if it goes
// ahead although the store did not decide it: because of on_unavailable: open, or because the part does not bind.
const (
	Allowed Outcome = iota
	Uncounted
	Refused
	Shadowed // a part had no room, and does not bind
	Failed   // there is no decision
	Invalid  // the request is invalid, and the store was not asked
	Outcomes // how many there are
)

var outcomeNames = [Outcomes]string{Allowed: "allowed", Uncounted: "uncounted", Refused: "refused", Shadowed: "shadow", Failed: "error", Invalid: "invalid"}

// String returns "allowed", "uncounted", "refused", "shadow", "error" or "invalid".
func (o Outcome) String() string { return outcomeNames[o] }

// An Origin is where an answer came from: a sash.Source, or FromConfig.
type Origin uint8

// FromConfig is the Origin of answers that need no store: to requests that nothing limits, or that are invalid.
const (
	FromConfig = Origin(sash.FromPolicy) + 1
	Origins    = FromConfig + 1 // how many there are
)

// String returns the name of the sash.Source, or "config".
func (o Origin) String() string {
	if o == FromConfig {
		return "config"
	}
	return sash.Source(o).String()
}

// Outcome returns the outcome of the request: Allowed, Uncounted, Refused, Failed or Invalid. A request that went ahead is Uncounted
// if any part is, even one that does not bind. Units that can never fit are Refused, even if the protocol calls them an error.
func (o *Observation) Outcome() Outcome {
	switch {
	case o.Err == nil && o.Allowed:
		for i := range o.Answers {
			if o.Answers[i].uncounted() {
				return Uncounted
			}
		}
		return Allowed
	case o.Err == nil, errors.Is(o.Err, sash.ErrCostAboveLimit):
		return Refused
	case errors.Is(o.Err, config.ErrUnknownDomain), errors.Is(o.Err, sash.ErrInvalidCost), errors.Is(o.Err, sash.ErrInvalidLimit),
		errors.Is(o.Err, sash.ErrInvalidKey), errors.Is(o.Err, sash.ErrInvalidID), errors.Is(o.Err, ErrCountsRefused), errors.Is(o.Err, ErrNoQueue),
		errors.Is(o.Err, ErrParts), errors.Is(o.Err, ErrTwice):
		return Invalid
	}
	return Failed
}

// OutcomeOf returns the outcome of part i.
func (o *Observation) OutcomeOf(i int) Outcome {
	switch a := &o.Answers[i]; {
	case o.Err != nil:
		return o.Outcome()
	case a.Refused && a.Soft():
		return Shadowed
	case a.Refused:
		return Refused
	case a.uncounted():
		return Uncounted
	}
	return Allowed
}

// uncounted reports whether nothing counts the units of a part that goes ahead, because the store did not answer.
func (a *Answer) uncounted() bool {
	return a.Source == sash.FromPolicy && a.Cost > 0 && a.Limited() && !a.Refused
}

// Origin returns where the answer came from; of several parts, the origin furthest from the store.
func (o *Observation) Origin() Origin {
	switch {
	case o.Err == nil:
	case o.Outcome() != Failed:
		return FromConfig
	case errors.Is(o.Err, sash.ErrUnavailable):
		return Origin(sash.FromPolicy)
	default:
		return Origin(sash.FromStore) // the caller did not wait for the store
	}
	from := FromConfig
	for i := range o.Answers {
		if one := o.Answers[i].origin(); from == FromConfig || one != FromConfig && one > from {
			from = one
		}
	}
	return from
}

// OriginOf returns where the answer of part i came from.
func (o *Observation) OriginOf(i int) Origin {
	if o.Err != nil {
		return o.Origin()
	}
	return o.Answers[i].origin()
}

func (a *Answer) origin() Origin {
	if len(a.Limits) == 0 && a.Source == sash.FromStore {
		return FromConfig
	}
	return Origin(a.Source)
}

// Rule names the rule that limited part i: its domain and its name in the configuration, or OfRequest. Both are empty
// if nothing limits the part. The names contain no values of the request, so there are few of them.
func (o *Observation) Rule(i int) (domain, rule string) {
	switch a := &o.Answers[i]; {
	case a.Rule != nil:
		return a.Rule.Domain, a.Rule.Label
	case a.Metric != "": // then the domain is one of the configuration's
		return o.Domain, OfRequest
	}
	return "", ""
}

// OfRequest names request limits, as a rule.
const OfRequest = "(request)"

// Decisive returns the part that decided: the first that refused, or else the first that anything limits. It returns -1 for none.
func (o *Observation) Decisive() int {
	first := -1
	for i := range o.Answers {
		a := &o.Answers[i]
		if a.Metric == "" || a.Replaced {
			continue
		}
		if a.Refused && !a.Soft() {
			return i
		}
		if first < 0 {
			first = i
		}
	}
	return first
}

// RefusedBy names the limit that refused part i, such as "300/1m"; empty if none did.
func (o *Observation) RefusedBy(i int) string {
	a := &o.Answers[i]
	switch outcome := o.OutcomeOf(i); {
	case outcome != Refused && outcome != Shadowed:
		return ""
	case a.RefusedBy.Limit.Name != "":
		return a.RefusedBy.Limit.Name
	case a.Rule == nil:
		return ""
	}
	for _, l := range a.Rule.Limits {
		if a.Cost > l.Units { // the store was not asked for these
			return cmp.Or(l.Name, l.String())
		}
	}
	return ""
}

// A candidate has the limits that are tried beside a rule's: enforced for some subjects, and compared for the others.
type candidate struct {
	*config.Candidate
	enforced *limits
	compared *limits // on a store without failure modes
}

// compileCandidate makes a rule's candidate ready for use. It returns nil if the rule has none.
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
	compared, err := d.compileLimits(place, &c.Options, c.Limits, failover.Modes{})
	return &candidate{c, enforced, compared}, err
}

// enforced returns the limits that apply to a subject: those of its candidate if that is enforced for the subject, or the rule's.
func (l *limits) enforced(key string) *limits {
	if c := l.candidate; c != nil && c.Enforced(key) {
		return c.enforced
	}
	return l
}

// compare adds to each answer that of its rule's candidate. A candidate that is not enforced charges a key of its own,
// as if it were the only limit: whatever the rule decided, and only if no other part refused. This takes another call
// to the store. If the store does not decide, compare leaves the candidate out, because a trial must stop no request.
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
			charge = func(ctx context.Context, charge bool) error { return c.giveBack(ctx, charge && gives) }
		}
		if charge(ctx, others == 0) != nil {
			return
		}
		c.insist(ctx, others == 0)
		c.Rule, a.Candidate = a.Rule, c
	}
}
