package decide

import (
	"context"
	crand "crypto/rand"
	"errors"
	"math"
	"math/rand/v2"

	"example.com/sash/driver"
	"example.com/sash/internal/apart"
)

// order returns the indexes of parts, from a random one on, so that each of equal ones is chosen as often as others.
func order(n int) []int {
	all, first := make([]int, n), rand.IntN(n)
	for i := range all {
		all[i] = (first + i) % n
	}
	return all
}

// choice makes part i the only one of a request, and returns its answer.
func choice(req *Request, answers []Answer, i int) []Answer {
	req.Parts, answers = req.Parts[i:i+1], answers[i:i+1]
	answers[0].Chosen = i
	return answers
}

// choose charges one of the parts of a request, and returns its answer alone: see Decide.
func (d *Decider) choose(ctx context.Context, req *Request, answers []Answer) ([]Answer, error) {
	var parts []*Answer
	var of []int
	seen, soft, never := make(map[string]bool), -1, -1
	for _, i := range order(len(answers)) {
		switch a := &answers[i]; {
		case !a.Limited():
			return choice(req, answers, i), nil
		case a.never || a.BannedBy != nil:
			never = i
		case a.limits.opts.CountRefused:
			return choice(req, answers, i), ErrCountsRefused
		case a.Soft():
			soft = i
		case !seen[a.Key]:
			seen[a.Key], a.settles = true, req.held != nil
			parts, of = append(parts, a), append(of, i)
		}
	}
	chosen, err := never, error(nil)
	if len(parts) > 0 {
		var at int
		at, err = d.chooseOf(ctx, parts)
		chosen = of[at]
	}
	if soft >= 0 && (len(parts) == 0 || err == nil && answers[chosen].Refused) {
		chosen = soft
		answers[soft].settles = req.held != nil
		err = answers[soft].soften(answers[soft].alone(ctx, true))
	} else if a := &answers[chosen]; len(parts) == 0 { // none can ever be charged
		if err = a.ever(); err == nil {
			err = a.look(ctx)
		}
	}
	if a := &answers[chosen]; a.settles && err == nil {
		d.hold(req, a, crand.Text(), &req.held[0])
	}
	return choice(req, answers, chosen), err
}

// chooseOf charges one of several parts that bind, in one step where the store can, and returns its index.
func (d *Decider) chooseOf(ctx context.Context, parts []*Answer) (int, error) {
	store, err := d.storeFor(batchesOf(parts))
	if err != nil {
		return 0, err
	}
	b, together := &driver.Batch{Mode: driver.Any}, true
	for _, a := range parts {
		b.Ops = append(b.Ops, driver.Op{Settlement: driver.Settlement{Request: a.request()}})
		together = together && a.kind() == parts[0].kind()
	}
	if err = driver.ErrApart; together {
		err = b.Do(ctx, store)
	}
	if errors.Is(err, driver.ErrApart) {
		err = apart.Choose(ctx, store, b)
	}
	if err != nil {
		return 0, failure(ctx, err)
	}
	a := parts[b.Chosen]
	a.result(a.limits.limiter.Result(a.Key, b.Ops[b.Chosen].Answer))
	return b.Chosen, nil
}

// ever returns sash.ErrCostAboveLimit for a part whose units can never fit.
func (a *Answer) ever() error {
	if a.BannedBy != nil || !a.never || a.limits.limiter == nil {
		return nil
	}
	return a.limits.fits(a.need)
}

// rank orders answers to a look as choose does: the part that is to be charged has the lowest.
func (a *Answer) rank() float64 {
	room := 1.0
	for _, l := range a.Limits {
		room = min(room, float64(l.Remaining-a.need)/float64(l.Limit.Units))
	}
	switch {
	case a.BannedBy != nil || a.never:
		return math.Inf(1)
	case a.Refused && !a.Soft():
		return 2 + float64(a.RefusedBy.RetryAfter)
	case a.Soft():
		return 1
	case a.Limited():
		return -room
	}
	return -1
}
