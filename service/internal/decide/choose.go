package decide

import (
	"context"
	crand "crypto/rand"
	"errors"
	"math/rand/v2"
	"slices"

	"example.com/sash/driver"
	"example.com/sash/internal/apart"
)

// choose charges one of the parts of a request, and returns its index: see Decide. The store chooses in one step if it can.
func (d *Decider) choose(ctx context.Context, req *Request, answers []Answer) (int, error) {
	var parts []*Answer
	var indexes []int
	b, together, soft, never := &driver.Batch{Mode: driver.Any}, true, -1, -1
	if i := slices.IndexFunc(answers, func(a Answer) bool { return !a.Limited() }); i >= 0 {
		return i, nil
	}
	for _, i := range rand.Perm(len(answers)) {
		a := &answers[i]
		switch {
		case a.never && a.Soft():
			soft = i
			continue
		case a.never || a.BannedBy != nil:
			if never < 0 || a.BannedBy != nil { // prefer a ban, which ends
				never = i
			}
			continue
		case a.limits.opts.CountRefused:
			return i, ErrCountsRefused
		case a.Soft():
			soft = i
		}
		a.settles = req.held != nil
		parts, indexes = append(parts, a), append(indexes, i)
		b.Ops = append(b.Ops, driver.Op{Settlement: driver.Settlement{Request: a.request()}})
		together = together && a.kind() == parts[0].kind()
	}
	switch {
	case len(parts) == 0 && soft >= 0:
		return soft, answers[soft].soften(answers[soft].look(ctx))
	case len(parts) == 0:
		a := &answers[never]
		if a.BannedBy == nil && a.limits.limiter != nil {
			return never, a.limits.fits(a.need)
		}
		return never, a.look(ctx)
	}
	store, err := d.storeFor(batchesOf(parts))
	if err != nil {
		return 0, err
	}
	err = outlive(ctx, store, req.held != nil, func(ctx context.Context) ([]driver.Op, error) {
		err := driver.ErrApart
		if together {
			err = b.Do(ctx, store)
		}
		if errors.Is(err, driver.ErrApart) {
			err = apart.Choose(ctx, store, b)
		}
		return b.Ops[b.Chosen : b.Chosen+1], err
	})
	if err != nil {
		return 0, err
	}
	a := parts[b.Chosen]
	a.result(a.limits.limiter.Result(a.Key, b.Ops[b.Chosen].Answer))
	if a.Refused && soft >= 0 { // the refusal of this part does not bind
		return soft, answers[soft].soften(answers[soft].look(ctx))
	}
	if req.held != nil {
		d.hold(req, a, crand.Text(), &req.held[0])
	}
	return indexes[b.Chosen], nil
}
