package sash

import (
	"context"
	"fmt"
	"time"
)

// What is reserved has to be given back by somebody. A caller who leaves while the store decides never hears
// that he was admitted: his charge would stay until it leaves the window, and who leaves again and again
// would fill it. So a decision that is to be settled outlives its caller, and an admission that finds him
// gone is given back:
//
//	caller   ask ------- leaves
//	store    decide ---------------- admitted --> given back
//	                     |<- at most settleTime ->|
//
// What is still not known after that may stay charged, as with a store that fails.

// decideForHolder is decideAll for charges that their caller settles.
func (l *Limiter) decideForHolder(ctx context.Context, store Settler, reqs []Request) ([]Result, error) {
	if ctx.Done() == nil || ctx.Err() != nil {
		return l.decideAll(ctx, reqs)
	}
	type answer struct {
		results []Result
		err     error
	}
	answered, left := make(chan answer), make(chan struct{})
	within, cancel := outlive(ctx)
	go func() {
		defer cancel()
		results, err := l.decideSafely(within, reqs)
		select {
		case answered <- answer{results, err}:
		case <-left:
			if err == nil {
				giveBack(ctx, store, reqs, results)
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

// decideSafely is decideAll in a goroutine of ours, where a store that panics would end the process.
func (l *Limiter) decideSafely(ctx context.Context, reqs []Request) (results []Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &StoreError{Err: fmt.Errorf("it panicked: %v", p)}
		}
	}()
	return l.decideAll(ctx, reqs)
}

// outlive returns a context that goes on for settleTime after the deadline of ctx, so that clients which
// look at deadlines keep one. It does not end when ctx is cancelled.
func outlive(ctx context.Context) (context.Context, context.CancelFunc) {
	detached := context.WithoutCancel(ctx)
	if deadline, ok := ctx.Deadline(); ok {
		return context.WithDeadline(detached, deadline.Add(settleTime))
	}
	return context.WithCancel(detached)
}

// giveBack cancels what was admitted. It is told once; when the store fails, nobody is there to know.
func giveBack(ctx context.Context, store Settler, reqs []Request, results []Result) {
	if !join(results).Allowed {
		return
	}
	for i, res := range results {
		_ = tell(ctx, store, Settlement{Request: reqs[i], Result: res})
	}
}
