package decide

import (
	"context"

	"example.com/sash"
	"example.com/sash/driver"
)

// request returns what a part asks of the store.
func (a *Answer) request() driver.Request {
	return driver.Request{Key: a.Key, Cost: a.need, Policy: a.limits.policy, Within: a.within}
}

// alone decides a part by itself, or, where the request is refused already, only looks.
func (d *Decider) alone(ctx context.Context, a *Answer, charge bool) error {
	switch {
	case !charge:
		return d.look(ctx, a)
	case a.never:
		return d.impossible(ctx, a)
	}
	return a.ask(ctx, a.request())
}

// ask has the store decide a request of the part, and fills in the answer.
func (a *Answer) ask(ctx context.Context, req driver.Request) error {
	answer, err := a.limits.store.Decide(ctx, req)
	if err == nil {
		a.read(answer)
	}
	return err
}

// impossible answers a part of a request that has more units than a limit. A part that has and that counts
// what it refuses is charged with as many as it holds.
func (d *Decider) impossible(ctx context.Context, a *Answer) error {
	if a.never && a.BannedBy == nil && a.limits.policy != nil && a.limits.policy.CountRefused {
		all := a.request()
		for _, l := range a.limits.named {
			all.Cost = min(all.Cost, l.Units)
		}
		if _, err := a.limits.store.Decide(ctx, all); err != nil {
			return err
		}
	}
	return d.look(ctx, a)
}

func (d *Decider) lookAll(ctx context.Context, parts []*Answer) error {
	for _, a := range parts {
		if err := d.look(ctx, a); err != nil {
			return err
		}
	}
	return nil
}

// look fills in an answer without charging: whether the part would be refused, and what is left.
func (d *Decider) look(ctx context.Context, a *Answer) error {
	switch {
	case a.BannedBy != nil:
		return nil
	case a.limits.policy == nil:
		a.refuseAll()
		return nil
	}
	req := a.request()
	req.Cost, req.Within = 0, 0
	if err := a.ask(ctx, req); err != nil {
		return err
	}
	if !a.refund {
		a.Foresee(a.need)
	}
	return nil
}

// Foresee turns the answer to a look into that to a request of a cost. A limit without room for it refuses, and its
// RetryAfter is the time until its next units are released: exact for a cost of 1; a larger one may have to wait longer.
func (a *Answer) Foresee(cost int64) {
	for i := range a.Limits {
		if l := &a.Limits[i]; l.Remaining < cost {
			l.Refused, l.RetryAfter = true, max(l.RetryAfter, l.ReleaseAfter)
		}
	}
	a.refusal()
}

// read fills in the answer from the store's.
func (a *Answer) read(answer driver.Answer) { a.result(a.limits.limiter.Result(a.Key, answer)) }

func (a *Answer) result(res sash.Result) {
	a.Limits, a.At, a.Delay, a.Source, a.Cause, a.Blocked = res.Limits(), res.At, res.Delay, res.Source, res.Cause, res.Blocked
	a.refusal()
}

// refusal finds the limit that refused.
func (a *Answer) refusal() {
	a.Refused, a.RefusedBy = false, sash.LimitResult{}
	for _, l := range a.Limits {
		if l.Refused && (!a.Refused || l.RetryAfter > a.RefusedBy.RetryAfter) {
			a.Refused, a.RefusedBy = true, l
		}
	}
}

// refuseAll fills in the answer of a limit of no units.
func (a *Answer) refuseAll() {
	limit := a.limits.named[0]
	if limit.Name == "" {
		limit.Name = limit.String()
	}
	by := sash.LimitResult{Key: a.Key, Limit: limit, Refused: !a.refund}
	a.Limits = []sash.LimitResult{by}
	a.refusal()
}
