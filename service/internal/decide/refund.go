package decide

import (
	"context"
	"fmt"
	"math"

	"example.com/sash"
	"example.com/sash/driver"
)

// MaxRefunds is the most parts of a request that give units back.
const MaxRefunds = 8

// refundSteps bounds the settlements of all refunds of a request, each of which has at least one.
const refundSteps = 8

// stepsOf returns the settlements that each refund of a request may take.
func stepsOf(answers []Answer) int {
	refunds := 0
	for i := range answers {
		if answers[i].refund {
			refunds++
		}
	}
	return max(1, refundSteps/max(1, refunds))
}

// giveBack gives units back to a subject: the oldest charges that still count, which are those that would
// leave first. What is left afterwards is therefore never counted for a shorter time than it should be.
//
// The store takes back from one charge at a time, and nothing from one of fewer units. A refund of no more than the oldest
// charge is one step. A refund that spans several charges takes more: see sizing. What is left after the steps stays
// charged until it leaves by itself. So does what other requests change in between, and what only calendar limits count
// in an exact log: they do not show when a charge was made. Refusals that other instances keep in memory hold for a
// second more.
//
// A step is two calls of the store, because a settlement does not report what it did.
func (d *Decider) giveBack(ctx context.Context, a *Answer, admitted bool, steps int) error {
	defer func() { a.Refused, a.RefusedBy = false, sash.LimitResult{} }()
	if !admitted || a.limits.policy == nil || a.need == 0 {
		return d.look(ctx, a)
	}
	settler, ok := d.store.(driver.Settler)
	if !ok {
		return fmt.Errorf("%w: a refund", sash.ErrUnsupported)
	}
	before, err := a.widest(ctx)
	left, try := a.need, a.need
	var size sizing
	for ; err == nil && steps > 0 && left > 0 && before.used() > 0; steps-- {
		if steps == 1 && left == a.need && size.missed > 0 {
			try = 1 // the last chance to give back any
		}
		try = min(try, left, before.used())
		req := driver.Request{Key: a.Key, Cost: try, Policy: a.limits.policy}
		err = settler.Settle(ctx, driver.Settlement{Request: req, At: before.oldest, Source: before.source})
		if err != nil {
			break
		}
		var after usage
		if after, err = a.widest(ctx); err != nil {
			break
		}
		missed := after == before
		if missed && try == 1 {
			break // nothing of it can be given back
		}
		if !missed {
			left -= try // it was given back, or somebody else changed something: not twice in any case
		}
		try, before = size.next(try, missed), after
	}
	return err
}

// A sizing finds sizes of charges, which the store does not show, so that steps that give nothing back are few: it halves
// the logarithm, because charges are of one unit as well as of thousands. The first miss of 1,000 units is followed by 31
// and, if that is too much as well, by 5 and 2. After a size that was given back, larger ones follow, up to the last
// that missed: the next charge is likely to be as large as the one before.
//
// In eight steps, of up to a million units, it gives back all that is asked, or at least three units and a third of the
// oldest charge.
type sizing struct {
	missed int64 // the units that were last too many; 0 before
	given  int64 // the units that were given back since; 0 before
}

// next returns the units to try after some that were given back, or were too many.
func (s *sizing) next(tried int64, missed bool) int64 {
	switch {
	case missed:
		s.missed, s.given = tried, 0
	case s.missed == 0:
		return tried
	default:
		s.given = tried
	}
	return max(1, int64(math.Sqrt(float64(max(1, s.given))*float64(s.missed))))
}

// A usage is what is used of a subject's widest limit.
type usage struct {
	units, remaining int64
	oldest, newest   int64 // microseconds since the Unix epoch
	source           sash.Source
}

func (u usage) used() int64 { return u.units - u.remaining }

// widest returns what is used of the limit that counts longest: units that have left it have left all others.
func (a *Answer) widest(ctx context.Context) (usage, error) {
	req := a.request()
	req.Cost = 0
	if err := a.ask(ctx, req); err != nil {
		return usage{}, err
	}
	var widest sash.LimitResult
	for i, l := range a.Limits {
		sliding, before := l.Limit.Period == 0, widest.Limit.Period == 0
		if i == 0 || sliding && !before || sliding == before && l.ResetAfter > widest.ResetAfter {
			widest = l
		}
	}
	at := a.At.UnixMicro()
	u := usage{units: widest.Limit.Units, remaining: widest.Remaining, oldest: at, newest: at, source: a.Source}
	switch a.limits.policy.Algorithm {
	case sash.SlidingLog, sash.SortedSetLog, sash.SlidingBuckets:
		if widest.Limit.Period == 0 {
			window := widest.Limit.Window.Microseconds()
			u.oldest = at - window + widest.ReleaseAfter.Microseconds()
			u.newest = at - window + widest.ResetAfter.Microseconds()
		}
	default: // counters take back at the present instant; only the units that remain show it
		u.oldest, u.newest = at, 0
	}
	return u, nil
}
