package driver

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
// A caller who leaves gets the error of ctx at once. The decision goes on for up to a second, and then giveBack is called
// with what it returned, unless that is an error. What the store decides later than that may stay charged. A panic of
// decide is returned as an error.
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
			err = fmt.Errorf("driver: the store panicked: %v", p)
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

// callerOf returns the context of the caller whom a decision may outlive.
func callerOf(ctx context.Context) context.Context {
	if caller, ok := ctx.Value(callerKey{}).(context.Context); ok {
		return caller
	}
	return ctx
}

// MaxGather is the most requests of one DecideMany. It bounds how long a store is busy with them: others wait meanwhile.
const MaxGather = 16

// A Gatherer decides requests of different subjects in one round trip, each by itself.
//
// A [Passthrough] does not pass it on: a decorator that changes what Decide does and does not know of DecideMany would not
// see plain decisions any more. So a decorator that embeds a Gatherer itself has to define both methods.
type Gatherer interface {
	Store
	// Gathers reports whether DecideMany takes a request, and the place where it is decided. Requests of one place go
	// together. Places that can fail or hang by themselves are different places. There are few: they are remembered.
	Gathers(req *Request) (place int, ok bool)
	// DecideMany decides 1 to MaxGather requests of one place, no key twice, one after the other, each as Decide would: it
	// returns one answer and one error for each, and the error of one says nothing about the others. Their policies may
	// differ. The error is ErrApart for a request that it did not decide, and that has to be decided by itself.
	DecideMany(ctx context.Context, reqs []Request) ([]Answer, []error)
}

// A Recaller is a store that knows some answers already, such as refusals that still hold. A [Passthrough] does not pass
// Recall on: a decorator that changes what Decide does would not see the calls that it answers.
type Recaller interface {
	Store
	// Recall returns the answer that Decide would give without asking another store, or false if there is none. It does
	// not block.
	Recall(req Request) (Answer, bool)
}
