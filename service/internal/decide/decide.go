// Package decide is the engine of the service. It asks the store about the parts of a request under the configuration
// in use, and returns an answer for each part. It knows no protocol.
package decide

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"example.com/sash"
	"example.com/sash/service/internal/config"
)

// A Decider decides requests. It is safe for concurrent use.
type Decider struct {
	stores    Stores
	instance  string // names this process among all
	rules     atomic.Pointer[rules]
	observers []Observer
	keys      [][]byte // name secrets: the first names subjects, and exceptions under any of them hold
	queues    queues

	changing sync.Mutex  // held while rules are replaced
	excepted []Exception // guarded by changing
}

// New returns a decider over the stores of places, which stay the caller's. Its errors are those of Use.
func New(cfg *config.Config, stores Stores) (*Decider, error) {
	d := &Decider{stores: stores, instance: rand.Text(), keys: [][]byte{[]byte(rand.Text())}}
	return d, d.Use(cfg)
}

// Use replaces the configuration, unless it returns an error. Requests that are being decided end under the old configuration.
func (d *Decider) Use(cfg *config.Config) error {
	if err := CheckKeys(cfg, d.keys); err != nil {
		return err
	}
	r, err := d.compile(cfg)
	if err != nil {
		return err
	}
	d.changing.Lock()
	defer d.changing.Unlock()
	d.except(r, d.excepted)
	d.rules.Store(r)
	return nil
}

// Config returns the configuration in use.
func (d *Decider) Config() *config.Config { return d.rules.Load().config }

// Decide decides a request, and returns one answer for each part. If all the parts that bind have room, Decide charges
// them. Otherwise it charges only those with Part.Always. When the binding parts were admitted, it charges the quotas,
// one of which must have room: see Request.Quota. It then charges each part that does not bind by itself.
//
// With Request.Any, Decide charges one part and returns only its answer: a part that nothing limits, or else the part with the most room,
// as sash.Limiter.AllowAny does. If none has room, it returns a part that does not bind, or else the one with the shortest retry time.
//
// Up to sash.MaxSubjects parts of one algorithm and resolution are one atomic step in memory, on one Redis server, and on a cluster if
// they share a slot. More parts are decided step by step: see apart.Decide.
//
// Errors are ErrParts, ErrTwice, sash.ErrInvalidLimit for an override that cannot be enforced, sash.ErrUnsupported, sash.ErrUnavailable,
// config.ErrNone, and the context's. Unless the request is Lenient, they are also config.ErrUnknownDomain, sash.ErrInvalidCost and
// sash.ErrCostAboveLimit.
func (d *Decider) Decide(ctx context.Context, req Request) ([]Answer, error) {
	began := time.Now()
	answers := make([]Answer, len(req.Parts))
	err := d.resolve(&req, answers)
	if err == nil {
		if len(answers) == 1 && answers[0].queue > 0 {
			defer d.inQueue(ctx, &req, &answers[0])()
		}
		if req.Any {
			var i int
			i, err = d.choose(ctx, &req, answers)
			req.Parts, answers = req.Parts[i:i+1], answers[i:i+1]
			answers[0].Chosen = i
		} else {
			err = d.charge(ctx, &req, answers)
		}
		if err == nil {
			d.compare(ctx, answers)
		}
	}
	d.observe(ctx, &req, answers, err, began) // after an error the answers are what is known
	if err != nil {
		return nil, err
	}
	return answers, nil
}

// charge charges the parts: first the parts that bind and the quotas, and then the parts that refuse nothing.
func (d *Decider) charge(ctx context.Context, req *Request, answers []Answer) error {
	switch {
	case req.held != nil && len(answers) == 1 && (req.UpTo || !req.Lenient):
		return d.reserve(ctx, req, &answers[0])
	case req.ID != "":
		return answers[0].chargeOnce(ctx, req.ID)
	case req.Counting != nil:
		return d.count(ctx, req, answers)
	}
	for i := range req.held {
		a := &answers[i]
		if a.settles = !req.Lenient || a.Rule != nil && a.Rule.Tokens != nil; a.settles && a.limits != nil && a.limits.opts.CountRefused {
			return ErrCountsRefused
		}
	}
	var few [4]*Answer
	binding, quotas := few[:0], false
	for i := range answers {
		switch a := &answers[i]; {
		case !a.Limited() || a.refund || a.Soft():
		case a.quota:
			quotas = true
		default:
			binding = append(binding, a)
		}
	}
	var admitted bool
	var err error
	if quotas {
		admitted, err = d.besideQuotas(ctx, binding, answers)
	} else {
		admitted, err = d.together(ctx, binding)
	}
	if err != nil {
		return err
	}
	for i := range answers {
		a := &answers[i]
		if !a.Limited() || a.refund || a.quota && quotas || !a.Soft() {
			continue
		}
		if err := a.alone(ctx, admitted); err != nil { // it refuses nothing: the others are charged already
			a.Source, a.Cause = sash.FromPolicy, err
		}
	}
	for i := range answers {
		a := &answers[i]
		a.insist(ctx, admitted)
		if a.Limited() && a.refund {
			if err := a.giveBack(ctx, admitted && a.limits.refunds(a.Rule)); err != nil {
				return err
			}
		}
		if a.settles {
			d.hold(req, a, rand.Text(), &req.held[i])
		}
	}
	return nil
}

// soften returns err, or nil if the store failed and the part does not bind.
func (a *Answer) soften(err error) error {
	if !a.Soft() || !errors.Is(err, sash.ErrUnavailable) {
		return err
	}
	a.Source, a.Cause = sash.FromPolicy, err
	return nil
}

// quotas marks the quotas of a request. A single quota is an ordinary limit. Beside a part without limits, quotas do not bind.
func (req *Request) quotas(answers []Answer) {
	var only *Answer
	n, room := 0, false
	for i := range answers {
		a := &answers[i]
		of := req.Quota || a.Rule != nil && a.Rule.Quota
		switch {
		case !of || a.BannedBy != nil || a.Shadow():
		case a.refund && a.Limited():
			room = true // giving back is never refused
		case a.Limited():
			a.quota, only = true, a
			n++
		case req.Quota && !(a.Rule != nil && a.Rule.Unlimited && !a.Replaced):
			room = true
		}
	}
	if n == 1 && !room {
		only.quota = false
	}
	if room {
		spare(answers)
	}
}

func spare(answers []Answer) {
	for i := range answers {
		answers[i].spared = answers[i].quota
	}
}

// besideQuotas decides the parts that bind and the quotas of a request, and reports whether it is admitted. It looks at
// the quotas first: otherwise a request that all of them refuse would be charged to the parts that bind.
func (d *Decider) besideQuotas(ctx context.Context, binding []*Answer, answers []Answer) (bool, error) {
	if len(binding) > 0 {
		over, err := exhausted(ctx, answers)
		if err != nil {
			return false, err
		}
		if over {
			return false, lookAll(ctx, binding)
		}
	}
	admitted, err := d.together(ctx, binding)
	if err != nil {
		return false, err
	}
	room, err := chargeQuotas(ctx, answers, admitted)
	if !admitted || room {
		return admitted, err
	}
	// The last quota lost its room to another request, or was not decided: the binding parts give back what they were charged.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()
	for _, a := range binding {
		err = cmp.Or(err, a.giveBack(ctx, true))
	}
	return false, err
}

// exhausted reports whether no quota has room. The caller asks before it charges the limits beside the quotas.
func exhausted(ctx context.Context, answers []Answer) (bool, error) {
	for i := range answers {
		a := &answers[i]
		if !a.quota {
			continue
		}
		if err := a.look(ctx); err != nil {
			if errors.Is(err, sash.ErrUnavailable) {
				err = nil // charging the quota finds out
			}
			return false, err
		}
		if !a.Refused {
			return false, nil
		}
	}
	return true, nil
}

// chargeQuotas charges each quota that has room, or only looks at them if the request is refused already. It reports
// whether one has room. A quota that the store did not decide has none. If no other has room, it returns the store's error.
func chargeQuotas(ctx context.Context, answers []Answer, charge bool) (room bool, err error) {
	var failed error
	for i := range answers {
		a := &answers[i]
		if !a.quota {
			continue
		}
		if err := a.alone(ctx, charge); err != nil {
			if !errors.Is(err, sash.ErrUnavailable) {
				return false, err
			}
			a.Source, a.Cause, failed = sash.FromPolicy, err, err
			continue
		}
		room = room || !a.Refused
	}
	if room {
		spare(answers)
		return true, nil
	}
	return false, failed
}

// ErrNotLimited means that nothing counts what a request names, so there is nothing to reset or override.
var ErrNotLimited = errors.New("nothing limits these entries")

// Peek returns what Decide would answer now, and charges nothing. It notifies no observer. Errors are those of Decide.
func (d *Decider) Peek(ctx context.Context, req Request) ([]Answer, error) {
	answers := make([]Answer, len(req.Parts))
	err, room := d.resolve(&req, answers), false
	for i := range answers {
		if a := &answers[i]; err == nil && a.Limited() {
			err = a.soften(a.look(ctx))
			room = room || a.quota && !a.Refused
		}
	}
	if room {
		spare(answers)
	}
	return answers, err
}

// A State is the state of one subject.
type State struct {
	// Entries are the entries of the subject, with secret values replaced by their names.
	Entries []config.Entry
	// Found is the rule of the subject; its Rule is nil if no rule matches.
	Found config.Found
	// Override is the override that holds; nil is none.
	Override *Exception
	// Ban is the ban that refuses the subject; of several, the last to end. Nil is none.
	Ban *Exception
	// Limits are the limits that hold now, from the rule or an override. An unlimited subject has none.
	Limits []sash.Limit
	// Answer is the store's answer to a request of no units. Its Limits are empty if the store was not asked.
	Answer Answer
}

// BlockedUntil returns the instant, on the clock of the answer, at which a block of the subject ends; zero if there is no block.
func (s *State) BlockedUntil() time.Time {
	if !s.Answer.Blocked {
		return time.Time{}
	}
	left := s.Answer.RefusedBy.RetryAfter
	for _, l := range s.Answer.Limits { // a limit that was exceeded before may have room only after the block
		left = min(left, l.RetryAfter)
	}
	return s.Answer.At.Add(left)
}

// State returns the state of a subject, even while it is banned. It charges nothing and notifies no observer. Like
// Reset, it accepts the name of a secret in place of the value. Errors are config.ErrUnknownDomain,
// sash.ErrUnavailable, and the context's.
func (d *Decider) State(ctx context.Context, domain string, entries []config.Entry) (State, error) {
	r := d.rules.Load()
	part := Part{Entries: entries, Named: true}
	d.hide(r, domain, &part)
	found, err := r.config.Find(domain, part.Entries)
	if err != nil {
		return State{}, err
	}
	held, overridden, banned := r.limitsOf(domain, &part, found)
	s := State{Entries: part.Entries, Found: found, Override: overridden, Ban: banned, Answer: Answer{Rule: found.Rule, Metric: found.Metric, Key: found.Key}}
	if held == nil {
		return s, nil
	}
	held = held.enforced(found.Key)
	if s.Limits, s.Answer.limits = held.named, held; held.limiter == nil {
		return s, nil
	}
	return s, s.Answer.look(ctx)
}

// Reset forgets what a subject was charged, under its rule and under an override. Other instances may refuse the subject
// from memory for one more second. Errors are config.ErrUnknownDomain, ErrNotLimited, and those of sash.Limiter.Reset.
func (d *Decider) Reset(ctx context.Context, domain string, entries []config.Entry) error {
	return d.ResetFor(ctx, Request{Domain: domain, Parts: []Part{{Entries: entries, Named: true}}})
}

// ResetFor is Reset for a caller that must send a secret itself, not its name. Its errors include sash.ErrInvalidLimit.
func (d *Decider) ResetFor(ctx context.Context, req Request) error {
	part, r := &req.Parts[0], d.rules.Load()
	d.hide(r, req.Domain, part)
	found, err := r.find(req.Domain, part)
	if err != nil {
		return err
	}
	if part.given != nil {
		l, err := d.compileOwn(config.Place{}, sash.Options{}, part.given)
		if err != nil {
			return err
		}
		return l.limiter.Reset(ctx, found.Key)
	}
	held := r.limits[found.Rule]
	if held == nil || held.limiter == nil {
		return fmt.Errorf("%w: there is nothing to forget", ErrNotLimited)
	}
	err = held.limiter.Reset(ctx, found.Key)
	if o, overridden, _ := r.limitsOf(req.Domain, part, found); overridden != nil { // the override has leases of its own
		err = errors.Join(err, o.limiter.Reset(ctx, found.Key))
	}
	if c := held.candidate; c != nil { // what was compared, and what the enforced candidate counts apart
		err = errors.Join(err, c.enforced.limiter.Reset(ctx, config.CandidateKey(found.Key)), c.enforced.limiter.Reset(ctx, found.Key))
	}
	return err
}
