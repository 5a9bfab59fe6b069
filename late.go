package sash

import (
	"context"

	"example.com/sash/driver"
)

// decideForHolder is decideAll for charges that the caller settles. A caller who leaves while the store decides does not
// learn that the call was admitted: the charge would stay until it leaves the window, and a caller who leaves again and
// again would fill it. So the decision outlives its caller, and what it admits then is given back.
func (l *Limiter) decideForHolder(ctx context.Context, store driver.Settler, calls []call) ([]Result, error) {
	results, err := driver.Outlive(ctx, func(ctx context.Context) ([]Result, error) {
		return l.decideAll(ctx, calls)
	}, func(results []Result) { l.giveBack(ctx, store, calls, results) })
	return results, storeError(ctx, err)
}

// giveBack cancels what was admitted. It tries once: when the store fails, no caller is left to report it to.
func (l *Limiter) giveBack(ctx context.Context, store driver.Settler, calls []call, results []Result) {
	if !join(results).Allowed {
		return
	}
	for i := range results {
		_ = l.settle(ctx, store, calls[i].settlement(&results[i]))
	}
}
