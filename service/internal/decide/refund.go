package decide

import (
	"context"
	"errors"
	"fmt"

	"example.com/sash"
	"example.com/sash/driver"
)

// MaxRefunds is the most parts of a request that give units back.
const MaxRefunds = 8

// giveBack gives units back to a subject: the oldest charges that still count, which are those that would leave first. What
// is left afterwards is therefore never counted for a shorter time than it should be. It is one call of the store, which
// bounds the charges that it takes from: see [driver.Taker]. Refusals that other instances keep in memory hold for a second
// more. While the store is unavailable nothing is given back.
func (d *Decider) giveBack(ctx context.Context, a *Answer, admitted bool) error {
	defer func() { a.Refused, a.RefusedBy = false, sash.LimitResult{} }()
	if !admitted || a.limits.policy == nil || a.need == 0 {
		return d.look(ctx, a)
	}
	closed, err := d.closed(a.limits.place)
	if err != nil {
		return err
	}
	store, ok := driver.As[driver.Taker](closed)
	if !ok {
		return fmt.Errorf("%w: a refund", sash.ErrUnsupported)
	}
	req := a.request()
	req.Cost = min(req.Cost, sash.MaxUnits)
	answer, err := store.Reward(ctx, req)
	if errors.Is(err, sash.ErrUnavailable) {
		return d.look(ctx, a) // which answers as the rule says
	}
	if err == nil {
		a.read(answer)
	}
	return err
}
