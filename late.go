package sash

import (
	"context"
	"fmt"
	"time"

	"example.com/sash/driver"
)

// Every reservation needs a caller who settles it. A caller who leaves while the store decides does not learn
// that the call was admitted: the charge would stay until it leaves the window, and a caller who leaves again
// and again would fill it. So a decision that may be settled outlives its caller, and an admission that finds
// the caller gone is given back:
//
//	caller   ask ------- leaves
//	store    decide ---------------- admitted --> given back
//	                     |<- at most settleTime ->|
//
// An answer that comes later than that may stay charged, as with a store that fails.

// decideForHolder is decideAll for charges that the caller settles.
func (l *Limiter) decideForHolder(ctx context.Context, store driver.Settler, calls []call) ([]Result, error) {
	if ctx.Done() == nil || ctx.Err() != nil {
		return l.decideAll(ctx, calls)
	}
	type answer struct {
		results []Result
		err     error
	}
	answered, left := make(chan answer), make(chan struct{})
	within, cancel := outlive(ctx)
	go func() {
		defer cancel()
		results, err := l.decideSafely(within, calls)
		select {
		case answered <- answer{results, err}:
		case <-left:
			if err == nil {
				safely(func() { giveBack(ctx, store, calls, results) })
			}
		}
	}()
	select {
	case a := <-answered:
		return a.results, a.err
	case <-ctx.Done():
		close(left)
		time.AfterFunc(settleTime, cancel)
		return nil, storeError(ctx, ctx.Err())
	}
}

// decideSafely is decideAll for a goroutine of this package, in which a panic of the store would end the process.
func (l *Limiter) decideSafely(ctx context.Context, calls []call) (results []Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &StoreError{Err: fmt.Errorf("it panicked: %v", p)}
		}
	}()
	return l.decideAll(ctx, calls)
}

// safely runs f in a goroutine of this package, in which a panic of the store would end the process.
func safely(f func()) {
	defer func() { _ = recover() }()
	f()
}

// outlive returns a context that goes on for settleTime after the deadline of ctx, so that clients that
// look at deadlines keep one. It does not end when ctx is cancelled.
func outlive(ctx context.Context) (context.Context, context.CancelFunc) {
	detached := context.WithoutCancel(ctx)
	if deadline, ok := ctx.Deadline(); ok {
		return context.WithDeadline(detached, deadline.Add(settleTime))
	}
	return context.WithCancel(detached)
}

// giveBack cancels what was admitted. It tries once: when the store fails, no caller is left to report it to.
func giveBack(ctx context.Context, store driver.Settler, calls []call, results []Result) {
	if !join(results).Allowed {
		return
	}
	for i := range results {
		_ = settle(ctx, store, calls[i].settlement(&results[i]))
	}
}
