package sash

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"example.com/sash/driver"
)

// decideForHolder is decideAll for charges that the caller settles. A caller who leaves while the store decides does not
// learn that the call was admitted: the charge would stay until it leaves the window, and a caller who leaves again and
// again would fill it. So the decision outlives its caller, and what it admits then is given back.
func (l *Limiter) decideForHolder(ctx context.Context, store driver.Settler, calls []call) ([]Result, error) {
	results, err := outlive(ctx, l.leavers, func(ctx context.Context) ([]Result, error) {
		return l.decideAll(ctx, calls)
	}, func(results []Result) { l.giveBack(ctx, store, calls, results) })
	return results, storeError(ctx, err)
}

// giveBack cancels what was admitted. It tries once: when the store fails, no caller is left to report it to.
func (l *Limiter) giveBack(ctx context.Context, store driver.Settler, calls []call, results []Result) {
	if !join(results).Allowed {
		return
	}
	_ = atOnce(len(results), func(i int) error {
		return l.settle(ctx, store, calls[i].settlement(&results[i]), time.Now().Add(results[i].Delay))
	})
}

// mostLeavers is how many callers can have left before the store has decided for them. While there are more, further calls
// wait for them: they would only make the store slower, until what it admits comes too late to be given back.
const mostLeavers = 16

// leavers counts the callers who have left before the store has decided and what it admitted is given back. The zero value
// has none.
type leavers struct {
	mu    sync.Mutex
	n     int           // guarded by mu
	fewer chan struct{} // guarded by mu: closed when n falls; nil when nobody waits for that
}

// wait returns when a call may ask the store, or the error of its context.
func (l *leavers) wait(ctx context.Context) error {
	for {
		l.mu.Lock()
		if l.n < mostLeavers {
			l.mu.Unlock()
			return nil
		}
		if l.fewer == nil {
			l.fewer = make(chan struct{})
		}
		fewer := l.fewer
		l.mu.Unlock()
		select {
		case <-fewer:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// add counts a caller who has left, or one for whom all is done.
func (l *leavers) add(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n += n
	if n < 0 && l.fewer != nil {
		close(l.fewer)
		l.fewer = nil
	}
}

// outlive is [driver.Outlive] among a bounded number of callers who have left.
func outlive[T any](ctx context.Context, l *leavers, decide func(context.Context) (T, error), giveBack func(T)) (value T, err error) {
	if err := l.wait(ctx); err != nil {
		return value, err
	}
	const left, over = 1, 2
	var state atomic.Int32
	end := func() {
		if state.Swap(over) == left {
			l.add(-1)
		}
	}
	value, err = driver.Outlive(ctx, func(ctx context.Context) (value T, err error) {
		admitted := false
		defer func() {
			if !admitted {
				end()
			}
		}()
		value, err = decide(ctx)
		admitted = err == nil
		return value, err
	}, func(value T) {
		defer end()
		giveBack(value)
	})
	if err != nil && state.CompareAndSwap(0, left) {
		l.add(1)
	}
	return value, err
}
