package decide

import (
	"context"
	"fmt"

	"example.com/sash"
	"example.com/sash/driver"
)

// refundSteps bounds the calls of the store for one refund.
const refundSteps = 64

// giveBack gives units back to a subject: the oldest charges that still count, which are those that would
// leave first. What is left afterwards is therefore never counted for a shorter time than it should be.
//
// The store takes back from one charge at a time. A refund of one unit is one step; one that spans many
// small charges takes as many, and what is left after refundSteps stays charged until it leaves by itself.
// So does what other requests change in between, and what only calendar limits count in an exact log: they
// do not tell when a charge was made. Refusals that other instances keep in memory hold on for a second.
func (r *run) giveBack(ctx context.Context, a *asked, admitted bool) error {
	defer func() { a.answer.Refused, a.answer.RefusedBy = false, sash.LimitResult{} }()
	if !admitted || a.req.Policy == nil || a.req.Cost == 0 {
		return r.look(ctx, a)
	}
	settler, ok := r.store.(driver.Settler)
	if !ok {
		return fmt.Errorf("%w: a refund", sash.ErrUnsupported)
	}
	left := a.req.Cost
	try := left
	before, err := r.peek(ctx, a)
	for step := 0; err == nil && step < refundSteps && left > 0; step++ {
		used := before.used()
		if used == 0 {
			break
		}
		try = min(try, left, used)
		err = settler.Settle(ctx, driver.Settlement{
			Request: driver.Request{Key: a.req.Key, Cost: try, Policy: a.req.Policy},
			At:      before.oldest, Source: before.source,
		})
		if err != nil {
			break
		}
		var after looked
		if after, err = r.peek(ctx, a); err != nil {
			break
		}
		switch {
		case after == before && try > 1: // the oldest charge is of fewer units
			try = (try + 1) / 2
		default: // it was given back, or somebody else changed something: not twice in any case
			left -= try
			try = left
		}
		before = after
	}
	if err != nil {
		return err
	}
	return r.look(ctx, a)
}

// A looked is the state of a subject's widest limit.
type looked struct {
	units, remaining int64
	oldest, newest   int64 // microseconds since the Unix epoch
	source           sash.Source
}

func (l looked) used() int64 { return l.units - l.remaining }

// peek looks at the limit that counts longest: what leaves it has left all others.
func (r *run) peek(ctx context.Context, a *asked) (looked, error) {
	answer, err := r.ask(ctx, a, driver.Request{Key: a.req.Key, Policy: a.req.Policy})
	if err != nil {
		return looked{}, err
	}
	res := a.limiter.Result(a.req.Key, answer)
	at := res.At.UnixMicro()
	var widest sash.LimitResult
	for i, l := range res.Limits() {
		sliding, before := l.Limit.Period == 0, widest.Limit.Period == 0
		if i == 0 || sliding && !before || sliding == before && l.ResetAfter > widest.ResetAfter {
			widest = l
		}
	}
	l := looked{units: widest.Limit.Units, remaining: widest.Remaining, oldest: at, newest: at, source: res.Source}
	switch a.req.Policy.Algorithm {
	case sash.SlidingLog, sash.SortedSetLog, sash.SlidingBuckets:
		if widest.Limit.Period == 0 {
			window := widest.Limit.Window.Microseconds()
			l.oldest = at - window + widest.ReleaseAfter.Microseconds()
			l.newest = at - window + widest.ResetAfter.Microseconds()
		}
	default: // counters take back at the present instant; only what remains tells
		l.oldest, l.newest = at, 0
	}
	return l, nil
}
