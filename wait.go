package sash

import (
	"context"
	"math"
	"time"

	"example.com/sash/driver"
)

// Wait waits until one unit is admitted: WaitN with a cost of 1.
func (l *Limiter) Wait(ctx context.Context, key string) error {
	return l.WaitN(ctx, key, 1)
}

// WaitN waits for cost units, in order: it books them with a single decision and sleeps until the booking starts. Calls start in the order
// in which the store gets them, over all processes that share it, and low costs do not overtake a high one. Only units freed by settlements
// and by callers who leave go to the next calls that fit there, and these delay no caller who waits. If the call cannot start before the
// context's deadline, WaitN fails at once with a [*LimitedError] that is also context.DeadlineExceeded, and nothing is charged. If the
// context ends first, WaitN returns its error, in two seconds at most. If the process ends, its places stay unused. See [Reservation.Wait].
//
// Calls that do not wait, such as Allow, get the units that waiting callers leave: none, as long as waiting callers request them all. Give
// waiting callers a limiter [Limiter.With] smaller limits to leave the rest to the others.
//
// If the store does not book (see [Limiter.Reserve]), or its queue is full or longer than [MaxAhead], the callers of this process ask
// in turn. The first asks again after its RetryAfter, and when this process gives back units of the key. Between processes there is no
// order. A caller whose deadline is nearer than the first caller's RetryAfter fails at once; others fail at their deadline. If the store
// fails, each caller asks for itself. Other errors are those of AllowN.
func (l *Limiter) WaitN(ctx context.Context, key string, cost int64) error {
	one, err := l.call(key, cost)
	if err != nil {
		return err
	}
	books := l.books("Wait") == nil
	var r *Reservation
	ask := func(under *policy) (res Result, err error) {
		c := newCall(one.Key, cost, under)
		if c.waits, c.MaySettle = true, books; !books {
			res, err = l.one(ctx, c)
		} else {
			c.book(l.patience(ctx))
			if r, err = l.reserve(ctx, driver.All, []call{c}); err == nil {
				res = r.result
			}
		}
		if err == nil && !res.Allowed && res.RetryAfter > l.patience(ctx) { // also after a store that took its time
			err = limited(key, res, context.DeadlineExceeded)
		}
		return res, err
	}
	if books && !l.queues.asks(one.Key) {
		if _, err := ask(l.policy); err != nil {
			return err
		}
	}
	if r == nil || !r.Allowed() {
		a := &asker{cost: cost, policy: l.policy, books: books}
		if err := l.queues.ask(ctx, key, one.Key, a, ask); err != nil || !books {
			return err
		}
	}
	return r.Wait(ctx)
}

// WaitDo runs f as soon as Wait admits it, and returns the error of f. If Wait fails, f does not run, and WaitDo returns Wait's error.
func (l *Limiter) WaitDo(ctx context.Context, key string, f func(context.Context) error) error {
	if err := l.Wait(ctx, key); err != nil {
		return err
	}
	return f(ctx)
}

// patience returns how long a caller can wait: to its deadline, less the time that the store's answer usually takes.
func (l *Limiter) patience(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return math.MaxInt64
	}
	return time.Until(deadline) - time.Duration(l.pace.usual.Load()) - 1
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return storeError(ctx, ctx.Err())
	}
}

// MaxAhead is the longest time ahead for which a call can be booked.
const MaxAhead = time.Duration(driver.MaxAhead) * time.Microsecond
