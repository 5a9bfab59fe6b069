package outgoing

import (
	"context"
	"math"
	"slices"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
)

// arriving is the store as the limiter sees it. Behind it windows are longer by the spread of the ways to the API, so
// that limits hold where requests arrive, and a paced bucket has one more limit. Results and errors have the limits as
// they were configured. A settlement finds its charge by its time, whatever the limits; the other powers are not used.
type arriving struct {
	driver.Passthrough
	spreads *spreads
	pace    func(*driver.Request) bool
}

// Decide implements [driver.Store].
func (a *arriving) Decide(ctx context.Context, req driver.Request) (driver.Answer, error) {
	shaped, paced := a.shape(req)
	answer, err := a.Next.Decide(ctx, shaped)
	if err != nil {
		return driver.Answer{}, err
	}
	return fold(answer, paced), nil
}

// DecideAll implements [driver.MultiStore].
func (a *arriving) DecideAll(ctx context.Context, reqs []driver.Request) ([]driver.Answer, error) {
	shaped, paced := a.shapeAll(reqs)
	answers, err := a.Passthrough.DecideAll(ctx, shaped)
	if err != nil || len(answers) != len(reqs) {
		return answers, err
	}
	for i := range answers {
		answers[i] = fold(answers[i], paced[i])
	}
	return answers, nil
}

// DecideAny implements [driver.Chooser].
func (a *arriving) DecideAny(ctx context.Context, reqs []driver.Request) (int, driver.Answer, error) {
	shaped, paced := a.shapeAll(reqs)
	chosen, answer, err := a.Passthrough.DecideAny(ctx, shaped)
	if err != nil || chosen < 0 || chosen >= len(reqs) {
		return chosen, answer, err
	}
	return chosen, fold(answer, paced[chosen]), nil
}

func (a *arriving) shapeAll(reqs []driver.Request) (shaped []driver.Request, paced []int) {
	shaped, paced = make([]driver.Request, len(reqs)), make([]int, len(reqs))
	for i, req := range reqs {
		shaped[i], paced[i] = a.shape(req)
	}
	return shaped, paced
}

// shape returns the request as the store gets it, and which limit is paced, by one more limit at the end: -1 if none is.
// Algorithms that approximate have no bound to keep, and calendar periods end when they end.
func (a *arriving) shape(req driver.Request) (shaped driver.Request, paced int) {
	if !req.Policy.Algorithm.Exact() {
		return req, -1
	}
	policy := *req.Policy
	policy.Limits = make([]driver.Limit, len(req.Policy.Limits), len(req.Policy.Limits)+1)
	paced = -1
	for i, l := range req.Policy.Limits {
		if l.Window > 0 {
			l.Window += a.spreads.of(req.Key, time.Duration(l.Window)*time.Microsecond).Microseconds()
			if paced < 0 || l.Window < policy.Limits[paced].Window {
				paced = i
			}
		}
		policy.Limits[i] = l
	}
	if len(policy.Limits) == driver.MaxLimits || !a.pace(&req) {
		paced = -1
	}
	if paced >= 0 {
		policy.Limits = append(policy.Limits, even(policy.Limits[paced], req.Cost))
	}
	req.Policy = &policy
	return req, paced
}

// even returns the limit that spreads the units of another evenly over its window: as many units as the call costs, in
// the time that this takes at the limit's rate. A window has at least a millisecond.
func even(l driver.Limit, cost int64) driver.Limit {
	each := float64(l.Window) / float64(l.Units)
	units := max(cost, int64(math.Ceil(float64(sash.MinWindow.Microseconds())/each)))
	return driver.Limit{Units: units, Window: int64(math.Ceil(float64(units) * each))}
}

// fold returns the answer without its last limit: if that refused, the limit that it paces did.
func fold(answer driver.Answer, paced int) driver.Answer {
	statuses := answer.Statuses()
	last := len(statuses) - 1
	if paced < 0 || paced >= last {
		return answer
	}
	pace, kept := statuses[last], slices.Clone(statuses[:last])
	refusals := answer.Refusals
	if bit := uint64(1) << last; refusals&bit != 0 {
		refusals = refusals&^bit | 1<<paced
		kept[paced].Retry = max(kept[paced].Retry, pace.Retry)
	}
	answer.Set(answer.At, refusals, kept)
	return answer
}
