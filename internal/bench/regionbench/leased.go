package regionbench

import (
	"context"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/lease"
)

// leased decides beside the region's Redis, with units that the region has leased from the home.
func (d *decider) leased() (decide, func(), error) {
	home, leave, err := openStore(d.Client, d.Home, d.Prefix)
	if err != nil {
		return nil, nil, err
	}
	near, left, err := openStore(d.Client, d.Near, d.Prefix)
	if err != nil {
		leave()
		return nil, nil, err
	}
	done := func() {
		leave()
		left()
	}
	store, err := lease.Shared(home, witness{near}, d.Lease, nil)
	if err != nil {
		done()
		return nil, nil, err
	}
	limiter, err := sash.New(store, nil, sash.Every(d.Limit.Units, d.Limit.Window))
	if err != nil {
		done()
		return nil, nil, err
	}
	return func(ctx context.Context, key string, cost int64) (answer, error) {
			var spent int64
			res, err := limiter.AllowN(context.WithValue(ctx, spentAt{}, &spent), key, cost)
			a := answer{admitted: res.Allowed, leased: res.Source == driver.FromLease, at: res.At.UnixNano()}
			if a.leased {
				a.at = spent
			}
			return a, err
		}, func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_ = store.Release(ctx) // what is not given back leaves with its window
			done()
		}, nil
}

// A witness is a holder that writes down when units are spent: an answer says only when the home charged them.
type witness struct{ driver.Holder }

// spentAt is the key of a context's value: where to write the instant.
type spentAt struct{}

func (w witness) Spend(ctx context.Context, s driver.Spending) (driver.Held, error) {
	held, err := w.Holder.Spend(ctx, s)
	if at, ok := ctx.Value(spentAt{}).(*int64); ok && held.Spent {
		*at = held.At * int64(time.Microsecond)
	}
	return held, err
}
