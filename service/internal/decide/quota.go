package decide

import (
	"context"
	"errors"

	"example.com/sash"
)

// Quotas refuse a request when none of them has room: a request that may go to one of several places has a quota for
// each. A request with one quota is refused by it as by any limit.

// quotas marks the quotas of a resolved request. One that is alone is a limit like others, and those beside a part that
// nothing limits are spared: see Answer.Soft.
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
	if err != nil || !admitted || room {
		return admitted, err
	}
	return false, giveBackAll(ctx, binding)
}

// exhausted reports whether no quota has room, before the limits beside them are charged.
func exhausted(ctx context.Context, answers []Answer) (bool, error) {
	for i := range answers {
		a := &answers[i]
		if !a.quota {
			continue
		}
		if err := a.look(ctx); err != nil {
			if errors.Is(err, sash.ErrUnavailable) {
				err = nil // charging it finds out
			}
			return false, err
		}
		if !a.Refused {
			return false, nil
		}
	}
	return true, nil
}

// chargeQuotas charges each quota that has room, or looks at them where the request is refused already. It reports
// whether one has room. A quota that the store did not decide is no room: if no other has any, the error is the store's.
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

// giveBackAll gives back what binding parts were charged before the last quota lost its room to another request. The
// caller may have left.
func giveBackAll(ctx context.Context, binding []*Answer) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()
	var failed error
	for _, a := range binding {
		if err := a.giveBack(ctx, true); failed == nil {
			failed = err
		}
	}
	return failed
}
