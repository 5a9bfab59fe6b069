package sash

import (
	"context"
	"time"
)

// Wait waits until one unit is admitted: WaitN with a cost of 1.
func (l *Limiter) Wait(ctx context.Context, key string) error {
	return l.WaitN(ctx, key, 1)
}

// WaitN waits until cost units are admitted. It sleeps for RetryAfter and tries again; of several waiters one wins, in no
// particular order. If the context's deadline is not later than that, it fails at once with a [*LimitedError] that is
// also context.DeadlineExceeded. If the context ends first, it returns the context's error. Other errors are those of
// AllowN.
func (l *Limiter) WaitN(ctx context.Context, key string, cost int64) error {
	return wait(ctx, key, func() (Result, error) { return l.AllowN(ctx, key, cost) })
}

// leastWait keeps a wait from spinning on a store whose refusals say that there is room at once.
const leastWait = time.Millisecond / 4

func wait(ctx context.Context, key string, allow func() (Result, error)) error {
	for {
		res, err := allow()
		if err != nil {
			return err
		}
		if res.Allowed {
			return nil
		}
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= res.RetryAfter {
			return limited(key, res, context.DeadlineExceeded)
		}
		if err := sleep(ctx, max(res.RetryAfter, leastWait)); err != nil {
			return err
		}
	}
}

// sleep waits for d, or returns the context's error if that ends first.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return storeError(ctx, ctx.Err())
	}
}
