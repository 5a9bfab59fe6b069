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
// The store takes back from one charge at a time. A refund of one unit is one step; a refund that spans many
// small charges takes as many steps, and what is left after refundSteps stays charged until it leaves by itself.
// So does what other requests change in between, and what only calendar limits count in an exact log: they
// do not show when a charge was made. Refusals that other instances keep in memory hold for a second more.
func (d *Decider) giveBack(ctx context.Context, a *Answer, admitted bool) error {
	defer func() { a.Refused, a.RefusedBy = false, sash.LimitResult{} }()
	if !admitted || a.limits.policy == nil || a.need == 0 {
		return d.look(ctx, a)
	}
	settler, ok := d.store.(driver.Settler)
	if !ok {
		return fmt.Errorf("%w: a refund", sash.ErrUnsupported)
	}
	left := a.need
	try := left
	before, err := a.widest(ctx)
	for step := 0; err == nil && step < refundSteps && left > 0; step++ {
		used := before.used()
		if used == 0 {
			break
		}
		try = min(try, left, used)
		req := driver.Request{Key: a.Key, Cost: try, Policy: a.limits.policy}
		err = settler.Settle(ctx, driver.Settlement{Request: req, At: before.oldest, Source: before.source})
		if err != nil {
			break
		}
		var after usage
		if after, err = a.widest(ctx); err != nil {
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
	return d.look(ctx, a)
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
