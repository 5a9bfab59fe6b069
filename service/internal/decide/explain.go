package decide

import (
	"context"
	"errors"

	"example.com/sash"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/verdict"
)

// Peek tells what a request of cost units would be told now, and charges nothing; a nil cost is that of the
// matching rule. Observers do not hear of it. Errors are those of Decide.
func (d *Decider) Peek(ctx context.Context, domain string, entries []config.Entry, cost *int64) (verdict.Verdict, error) {
	return d.current.Load().decide(domain, entries, cost, new(Answer), looker(ctx))
}

func looker(ctx context.Context) asker {
	return func(h hold, a *Answer) (verdict.Verdict, error) {
		res, err := h.limiter.Peek(ctx, a.Key)
		if err != nil {
			return verdict.Verdict{}, err
		}
		a.tell(res)
		return verdict.Foresee(res, a.Units), nil
	}
}

// An Explanation is why a request is answered as it is.
type Explanation struct {
	// Steps is how each entry was matched, up to the first that matches nothing.
	Steps []config.Step
	// Found is the rule, and the subject that is charged.
	Found config.Found
	// Cost is the units that the request asks for; 0 when it does not say and nothing limits it.
	Cost int64
	// Limits is each limit with what is left of it now; empty when the store was not asked.
	Limits []sash.LimitResult
	// Verdict is what Peek tells.
	Verdict verdict.Verdict
	// Never is nil, or why the request can never be admitted; then there is no verdict.
	Never error
}

// Explain tells which rule a request meets, and what it would be told now. It charges nothing. Errors are
// those of Peek, but for sash.ErrCostAboveLimit, which is told.
func (d *Decider) Explain(ctx context.Context, domain string, entries []config.Entry, cost *int64) (Explanation, error) {
	s := d.current.Load()
	steps, found, err := s.config.Trace(domain, entries)
	if err != nil {
		return Explanation{}, err
	}
	var a Answer
	v, err := s.decide(domain, entries, cost, &a, looker(ctx))
	e := Explanation{Steps: steps, Found: found, Cost: a.Units, Limits: a.Limits, Verdict: v}
	if errors.Is(err, sash.ErrCostAboveLimit) {
		e.Never, err = err, nil
	}
	return e, err
}
