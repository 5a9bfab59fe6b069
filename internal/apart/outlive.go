// Package apart decides in several steps what a store cannot decide in one, and gives back what nobody waits for any more.
package apart

import (
	"context"
	"fmt"
	"time"
)

// afterwards bounds what goes on after a caller has left: the decision, and then giving back.
const afterwards = time.Second

// Left are the callers who have left before the store has decided and what it admitted is given back. While it is full of them, further
// calls wait: they would only make the store slower, until what it admits comes too late to be given back. Nil bounds nothing.
type Left chan struct{}

// NewLeft returns a Left without callers.
func NewLeft() Left { return make(Left, 16) }

// Outlive runs a decision whose charges are given back if the caller leaves before it ends:
//
//	caller   ask ------- leaves
//	store    decide ---------------- admitted --> given back
//	                     |<-- at most 1 s -->|
//
// A caller who leaves gets the error of ctx at once. The decision goes on for up to a second, and then giveBack is called with what it
// returned, unless that is an error. What the store decides later than that may stay charged. A panic of decide is returned as an error.
func Outlive[T any](ctx context.Context, left Left, decide func(context.Context) (T, error), giveBack func(T)) (value T, err error) {
	if left != nil {
		select {
		case left <- struct{}{}:
			<-left
		case <-ctx.Done():
			return value, ctx.Err()
		}
	}
	if ctx.Done() == nil || ctx.Err() != nil {
		return safely(ctx, decide)
	}
	type outcome struct {
		value T
		err   error
	}
	decided, gone, over := make(chan outcome), make(chan struct{}), make(chan struct{})
	within, cancel := extend(ctx)
	go func() {
		defer cancel()
		defer close(over)
		value, err := safely(within, decide)
		select {
		case decided <- outcome{value, err}:
		case <-gone:
			if err == nil {
				_, _ = safely(within, func(context.Context) (T, error) { giveBack(value); return value, nil })
			}
		}
	}()
	select {
	case o := <-decided:
		return o.value, o.err
	case <-ctx.Done():
		close(gone)
		time.AfterFunc(afterwards, cancel)
		left.join(over)
		return value, ctx.Err()
	}
}

// join adds a caller who has left until all is over. Where it is full, the caller has the next place, before any call that waits.
func (left Left) join(over <-chan struct{}) {
	if left == nil {
		return
	}
	joined := false
	select {
	case left <- struct{}{}:
		joined = true
	default:
	}
	go func() {
		if !joined {
			left <- struct{}{}
		}
		<-over
		<-left
	}()
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

// extend returns a context that ends a second after the deadline of ctx, for clients that look at deadlines, and not when it is canceled.
func extend(ctx context.Context) (context.Context, context.CancelFunc) {
	detached := context.WithValue(context.WithoutCancel(ctx), callerKey{}, ctx)
	if deadline, ok := ctx.Deadline(); ok {
		return context.WithDeadline(detached, deadline.Add(afterwards))
	}
	return context.WithCancel(detached)
}

// callerKey is the key of the caller's context in one that outlives it.
type callerKey struct{}
