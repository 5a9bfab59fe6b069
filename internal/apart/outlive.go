// Package apart decides in several steps what a store cannot decide in one, and gives back what nobody waits for any more.
package apart

import (
	"context"
	"fmt"
	"time"
)

// afterwards bounds what goes on after a caller has left: the decision, and then giving back.
const afterwards = time.Second

// Outlive runs a decision whose charges are given back if the caller leaves before it ends:
//
//	caller   ask ------- leaves
//	store    decide ---------------- admitted --> given back
//	                     |<-- at most 1 s -->|
//
// A caller who leaves gets the error of ctx at once. The decision goes on for up to a second, and then giveBack is called with what it
// returned, unless that is an error. What the store decides later than that may stay charged. A panic of decide is returned as an error.
func Outlive[T any](ctx context.Context, decide func(context.Context) (T, error), giveBack func(T)) (T, error) {
	if ctx.Done() == nil || ctx.Err() != nil {
		return safely(ctx, decide)
	}
	type outcome struct {
		value T
		err   error
	}
	decided, left := make(chan outcome), make(chan struct{})
	within, cancel := extend(ctx)
	go func() {
		defer cancel()
		value, err := safely(within, decide)
		select {
		case decided <- outcome{value, err}:
		case <-left:
			if err == nil {
				_, _ = safely(within, func(context.Context) (T, error) { giveBack(value); return value, nil })
			}
		}
	}()
	select {
	case o := <-decided:
		return o.value, o.err
	case <-ctx.Done():
		close(left)
		time.AfterFunc(afterwards, cancel)
		var none T
		return none, ctx.Err()
	}
}

// safely calls f, and returns a panic as an error: in a goroutine of this package it would end the process.
func safely[T any](ctx context.Context, f func(context.Context) (T, error)) (value T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the store panicked: %v", p)
		}
	}()
	return f(ctx)
}

// extend returns a context that ends a second after the deadline of ctx, so that clients that look at deadlines keep
// one. It does not end when ctx is canceled.
func extend(ctx context.Context) (context.Context, context.CancelFunc) {
	detached := context.WithValue(context.WithoutCancel(ctx), callerKey{}, ctx)
	if deadline, ok := ctx.Deadline(); ok {
		return context.WithDeadline(detached, deadline.Add(afterwards))
	}
	return context.WithCancel(detached)
}

// callerKey is the key of the caller's context in one that outlives it.
type callerKey struct{}
