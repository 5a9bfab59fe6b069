package apart

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"example.com/sash/driver"
)

// mostTries bounds how often Decide begins again.
const mostTries = 3

// Decide carries out charges that a store cannot decide in one step, all or nothing. Each step is a batch of mode
// [driver.All]. If the store cannot decide those of a step together (ErrApart), each charge becomes a step of its own.
//
// All callers charge the steps in the order of their least keys, so that two calls over the same subjects do not refuse
// each other. (Steps of several keys have no common order with all others: "a z" before "m", and "m" before "z".) A call
// looks at the later steps first, and begins with a step that has no room. So a call that will be refused charges nothing.
// Its charge would refuse other calls until it is given back, with a retry time of a whole window. If another call takes
// the room in between, Decide gives the charges back and begins again.
//
// If refused calls are charged too, a refusal is charged only to the requests of the step that refuses. Decide also gives
// charges back when the store fails, or when the caller leaves (see [Outlive]). If the process ends in between, they stay
// charged until they leave the window.
//
// Decide sets the answers, and reports whether all were admitted. If not, only the answers of the step that refused are set; the others
// have no statuses. The error is ErrUnsupported if the decision takes several steps and the store does not settle.
func Decide(ctx context.Context, store driver.Store, steps ...[]driver.Op) (bool, error) {
	caller, outlived := ctx.Value(callerKey{}).(context.Context)
	if !outlived {
		caller = ctx
	}
	p := plan{store: store, left: caller.Err}
	for _, ops := range steps { // copies: the caller may have left before the store has decided
		p.steps = append(p.steps, step(slices.Clone(ops)))
		clearAnswers(ops)
	}
	own := slices.Clone(p.steps) // split makes steps of the same memory
	answered := func() {
		for i := range own {
			for j := range steps[i] {
				steps[i][j].Answer = own[i][j].Answer
			}
		}
	}
	if len(steps) == 1 {
		err := p.ask(ctx, own[0])
		if !errors.Is(err, driver.ErrApart) {
			answered()
			return err == nil && allAdmitted(own[0]), err
		}
		p.split()
	}
	if store.Powers()&driver.CanSettle == 0 {
		return false, fmt.Errorf("%w: one decision over subjects in different places", driver.ErrUnsupported)
	}
	for _, s := range p.steps {
		for j := range s {
			s[j].MaySettle = true
		}
	}
	admitted, err := Outlive(ctx, nil, p.decide, func(admitted bool) {
		if admitted {
			_ = p.giveBack(ctx, p.steps)
		}
	})
	if err != nil {
		return false, err
	}
	answered()
	return admitted, nil
}

func clearAnswers(ops []driver.Op) {
	for i := range ops {
		ops[i].Answer = driver.Answer{}
	}
}

// A plan is the steps of one decision.
type plan struct {
	store driver.Store
	left  func() error // the error of the caller's context
	steps []step
}

// A step is charges that are decided at once. Their answers are set while they are charged or have refused.
type step []driver.Op

func (s step) key() string {
	return slices.MinFunc(s, func(a, b driver.Op) int { return strings.Compare(a.Key, b.Key) }).Key
}

func (p *plan) decide(ctx context.Context) (bool, error) {
	for try := 1; ; {
		slices.SortFunc(p.steps, func(a, b step) int { return strings.Compare(a.key(), b.key()) })
		for _, s := range p.steps {
			clearAnswers(s)
		}
		order, err := p.order(ctx)
		charged, admitted := 0, false
		if err == nil {
			charged, admitted, err = p.charge(ctx, order)
		}
		if errors.Is(err, driver.ErrApart) && p.split() {
			continue
		}
		if err != nil || admitted || charged == 0 || try == mostTries {
			return admitted, err
		}
		try++
	}
}

// order returns the steps in the order of their keys, but puts a step without room first. It does not look at the step that is first.
func (p *plan) order(ctx context.Context) ([]step, error) {
	for i := 1; i < len(p.steps); i++ {
		s := p.steps[i]
		looks := slices.Clone(s)
		for j := range looks {
			looks[j].Cost, looks[j].MaySettle = 0, false
		}
		if err := p.ask(ctx, looks); err != nil {
			return nil, err
		}
		for j := range looks {
			if answer := &looks[j].Answer; !answer.Allowed() || answer.Remaining() < s[j].Cost {
				return slices.Concat(p.steps[i:i+1], p.steps[:i], p.steps[i+1:]), nil
			}
		}
	}
	return p.steps, nil
}

// charge charges the steps in an order, and reports whether all were admitted. If not, it gives back the steps that were,
// and returns their number. The error is ErrApart only if all of them were given back.
func (p *plan) charge(ctx context.Context, order []step) (charged int, admitted bool, err error) {
	for i, s := range order {
		err := p.ask(ctx, s)
		if err == nil && allAdmitted(s) {
			continue
		}
		failed := p.giveBack(ctx, order[:i])
		if failed != nil && errors.Is(err, driver.ErrApart) {
			err = nil
		}
		return i, false, errors.Join(err, failed)
	}
	return len(order), true, nil
}

// giveBack gives back the charges of steps, and forgets their answers. It returns the first error: there may be one for each charge.
func (p *plan) giveBack(ctx context.Context, steps []step) (failed error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), afterwards)
	defer cancel()
	for _, s := range steps {
		for j := range s {
			if op := &s[j]; op.Cost > 0 {
				back := driver.Batch{Ops: []driver.Op{Undo(op)}}
				if err := p.store.Do(ctx, &back); failed == nil {
					failed = err
				}
			}
		}
		clearAnswers(s)
	}
	return failed
}

// Undo returns the operation that gives back a whole charge.
func Undo(op *driver.Op) driver.Op {
	a := &op.Answer
	return driver.Op{Kind: driver.Settle, Settlement: driver.Settlement{Request: op.Request, At: a.At, Delay: a.Delay, Source: a.Source}}
}

func (p *plan) ask(ctx context.Context, s step) error {
	if err := p.left(); err != nil {
		return err
	}
	b := driver.Batch{Ops: s}
	return b.Do(ctx, p.store)
}

// split makes each charge a step of its own. It reports false if each is one already.
func (p *plan) split() bool {
	var single []step
	for _, s := range p.steps {
		for j := range s {
			single = append(single, s[j:j+1])
		}
	}
	several := len(single) > len(p.steps)
	p.steps = single
	return several
}

func allAdmitted(ops []driver.Op) bool {
	return !slices.ContainsFunc(ops, func(op driver.Op) bool { return !op.Answer.Allowed() })
}
