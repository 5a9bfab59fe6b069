package decide

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/service/internal/config"
)

// ErrNotLimited means that nothing counts what a request names, so that there is nothing to reset or to override.
var ErrNotLimited = errors.New("nothing limits these entries")

// Peek returns what Decide would answer now, and charges nothing. Observers are not notified. Errors are those of
// Decide.
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

// A State is how one subject stands.
type State struct {
	// Entries are those of the subject, with secret values replaced by their names.
	Entries []config.Entry
	// Found is the rule of the subject; its Rule is nil where none matches.
	Found config.Found
	// Override is the override that holds; nil is none.
	Override *Exception
	// Ban is the ban that refuses the subject, of several the last to end; nil is none.
	Ban *Exception
	// Limits are what holds it now, of its rule or of an override; none is unlimited. Policy is how they are
	// counted; nil where nothing is.
	Limits []sash.Limit
	Policy *driver.Policy
	// Answer is the store's, to a request of no units; its Limits are empty where the store was not asked.
	Answer Answer
}

// BlockedUntil returns the instant, on the clock of the answer, at which a block of the subject ends; zero without one.
func (s *State) BlockedUntil() time.Time {
	if !s.Answer.Blocked {
		return time.Time{}
	}
	left := s.Answer.RefusedBy.RetryAfter
	for _, l := range s.Answer.Limits { // one that was exceeded before may have room later than that
		left = min(left, l.RetryAfter)
	}
	return s.Answer.At.Add(left)
}

// State returns how a subject stands, also while it is banned, and charges nothing. Observers are not notified. It takes
// the name of a secret for its value, and so does Reset.
// Errors are config.ErrUnknownDomain, sash.ErrUnavailable, and the context's.
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
	s.Policy = held.limiter.Policy()
	return s, s.Answer.look(ctx)
}

// Reset forgets what the subject of a request was charged, under its rule and an override of it. Other instances that
// share the store may refuse it from memory for up to a second more. Errors are config.ErrUnknownDomain, ErrNotLimited,
// and those of sash.Limiter.Reset.
func (d *Decider) Reset(ctx context.Context, domain string, entries []config.Entry) error {
	return d.forget(ctx, domain, &Part{Entries: entries, Named: true})
}

// ResetFor is Reset for a request of one part, whose caller is no operator: it has to know a secret, not its name. The
// error is also sash.ErrInvalidLimit.
func (d *Decider) ResetFor(ctx context.Context, req Request) error {
	part := &req.Parts[0]
	if part.given == nil {
		return d.forget(ctx, req.Domain, part)
	}
	l, err := d.compileOwn(config.Place{}, sash.Options{}, part.given)
	if err != nil {
		return err
	}
	return l.limiter.Reset(ctx, givenKey(part))
}

func (d *Decider) forget(ctx context.Context, domain string, part *Part) error {
	r := d.rules.Load()
	d.hide(r, domain, part)
	found, err := r.config.Find(domain, part.Entries)
	if err != nil {
		return err
	}
	held := r.limits[found.Rule]
	if held == nil || held.limiter == nil {
		return fmt.Errorf("%w: there is nothing to forget", ErrNotLimited)
	}
	err = held.limiter.Reset(ctx, found.Key)
	if o, overridden, _ := r.limitsOf(domain, part, found); overridden != nil { // it has leases of its own
		err = errors.Join(err, o.limiter.Reset(ctx, found.Key))
	}
	if c := held.candidate; c != nil { // where it was compared, and where it counts apart
		err = errors.Join(err, c.enforced.limiter.Reset(ctx, config.CandidateKey(found.Key)), c.enforced.limiter.Reset(ctx, found.Key))
	}
	return err
}
