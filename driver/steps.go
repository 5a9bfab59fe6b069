package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// mostTries bounds how often DecideInSteps begins again.
const mostTries = 3

// DecideInSteps decides requests that a store cannot decide in one step, all or nothing. Each step holds requests for one
// DecideAll. If the store cannot decide those of a step together (ErrApart), each request becomes a step of its own.
//
// All callers charge the steps in the order of their least keys, so that two calls over the same subjects do not refuse
// each other. (Steps of several keys have no common order with all others: "a z" before "m", and "m" before "z".) A call
// looks at the later steps first, and begins with one that has no room. So a call that will be refused charges nothing:
// its charge would refuse other calls until it is given back, with a retry time that is a whole window. If another call
// takes the room in between, the charges are given back and the call begins again.
//
// Where refused calls are charged too, a refusal is charged to the requests of the step that refuses, and to no others.
// What was charged is also given back when the store fails, or when the caller leaves (see [Outlive]). If the process ends
// in between, it stays charged until it leaves the window.
//
// It returns one answer for each request, and whether all were admitted. If not, only the answers of the step that
// refused are set; the others have no statuses. The error is ErrUnsupported if it takes several steps and the store does
// not settle.
func DecideInSteps(ctx context.Context, store Store, steps [][]Request) ([][]Answer, bool, error) {
	caller, outlived := ctx.Value(callerKey{}).(context.Context)
	if !outlived {
		caller = ctx
	}
	p := plan{store: store, left: caller.Err}
	answers := make([][]Answer, len(steps))
	for i, reqs := range steps {
		answers[i] = make([]Answer, len(reqs))
		p.steps = append(p.steps, step{reqs, answers[i]})
	}
	if len(steps) == 1 {
		decided, err := p.ask(ctx, steps[0])
		if !errors.Is(err, ErrApart) {
			copy(answers[0], decided)
			return answers, err == nil && allAdmitted(decided), err
		}
		p.split()
	}
	settler, ok := As[Settler](store)
	if !ok {
		return nil, false, fmt.Errorf("%w: one decision over subjects in different places", ErrUnsupported)
	}
	p.settler = settler
	admitted, err := Outlive(ctx, p.decide, func(admitted bool) {
		if admitted {
			_ = p.giveBack(ctx, p.steps)
		}
	})
	if err != nil {
		return nil, false, err
	}
	return answers, admitted, nil
}

// A plan is the steps of one decision.
type plan struct {
	store   Store
	settler Settler
	left    func() error // the error of the caller's context
	steps   []step
}

// A step is requests that are decided at once, and their answers, which are set while they are charged or have refused.
type step struct {
	reqs    []Request
	answers []Answer
}

// key returns the least key of the step.
func (s step) key() string {
	return slices.MinFunc(s.reqs, func(a, b Request) int { return strings.Compare(a.Key, b.Key) }).Key
}

// decide charges the steps in the order of their keys.
func (p *plan) decide(ctx context.Context) (bool, error) {
	for try := 1; ; {
		slices.SortFunc(p.steps, func(a, b step) int { return strings.Compare(a.key(), b.key()) })
		for _, s := range p.steps {
			clear(s.answers)
		}
		order, err := p.order(ctx)
		charged, admitted := 0, false
		if err == nil {
			charged, admitted, err = p.charge(ctx, order)
		}
		if errors.Is(err, ErrApart) && p.split() {
			continue
		}
		if err != nil || admitted || charged == 0 || try == mostTries {
			return admitted, err
		}
		try++
	}
}

// order returns the steps in the order of their keys, but first one that has no room, if there is any. The first of the
// keys is not looked at, because it is decided next.
func (p *plan) order(ctx context.Context) ([]step, error) {
	for i := 1; i < len(p.steps); i++ {
		s := p.steps[i]
		looks := slices.Clone(s.reqs)
		for j := range looks {
			looks[j].Cost = 0
		}
		answers, err := p.ask(ctx, looks)
		if err != nil {
			return nil, err
		}
		for j := range answers {
			if !answers[j].Allowed() || answers[j].Remaining() < s.reqs[j].Cost {
				return slices.Concat(p.steps[i:i+1], p.steps[:i], p.steps[i+1:]), nil
			}
		}
	}
	return p.steps, nil
}

// charge charges the steps in an order, and reports whether all were admitted. If not, it has given back those that were,
// and returns how many. The error is ErrApart only if all were given back.
func (p *plan) charge(ctx context.Context, order []step) (charged int, admitted bool, err error) {
	for i, s := range order {
		reqs := slices.Clone(s.reqs)
		for j := range reqs {
			reqs[j].MaySettle = true
		}
		answers, err := p.ask(ctx, reqs)
		copy(s.answers, answers)
		if err == nil && allAdmitted(answers) {
			continue
		}
		failed := p.giveBack(ctx, order[:i])
		if failed != nil && errors.Is(err, ErrApart) {
			err = nil
		}
		return i, false, errors.Join(err, failed)
	}
	return len(order), true, nil
}

// giveBack gives back the charges of steps, and forgets their answers. The error is the first: those of a store that ended
// would be as many as the charges.
func (p *plan) giveBack(ctx context.Context, steps []step) (failed error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), afterwards)
	defer cancel()
	for _, s := range steps {
		for j, req := range s.reqs {
			if req.Cost > 0 {
				set := Settlement{Request: req, At: s.answers[j].At, Delay: s.answers[j].Delay, Source: s.answers[j].Source}
				if err := p.settler.Settle(ctx, set); failed == nil {
					failed = err
				}
			}
		}
		clear(s.answers)
	}
	return failed
}

// ask has the store decide requests in one step, unless the caller has left.
func (p *plan) ask(ctx context.Context, reqs []Request) ([]Answer, error) {
	if err := p.left(); err != nil {
		return nil, err
	}
	if len(reqs) == 1 {
		answer, err := decideChecked(ctx, p.store, reqs[0])
		return []Answer{answer}, err
	}
	store, ok := p.store.(MultiStore)
	if !ok {
		return nil, ErrApart
	}
	answers, err := store.DecideAll(ctx, reqs)
	if err == nil {
		err = CheckAll(reqs, answers)
	}
	return answers, err
}

// split makes each request a step of its own. It reports false if that is so already.
func (p *plan) split() bool {
	var single []step
	for _, s := range p.steps {
		for j := range s.reqs {
			single = append(single, step{s.reqs[j : j+1], s.answers[j : j+1]})
		}
	}
	several := len(single) > len(p.steps)
	p.steps = single
	return several
}

func allAdmitted(answers []Answer) bool {
	return !slices.ContainsFunc(answers, func(a Answer) bool { return !a.Allowed() })
}
