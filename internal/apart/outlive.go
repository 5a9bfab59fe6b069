// Package apart decides in several steps what a store cannot decide in one, and gives back what is admitted after its caller has left.
package apart

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// afterwards bounds each thing that goes on after a caller has left: the decision, and then giving back.
const afterwards = time.Second

// Left counts the callers who have left while the store still decides their calls or takes back what it admitted. While there are many,
// further calls wait: they would slow the store down until its admissions come too late to be given back. Nil bounds nothing.
type Left struct {
	mu    sync.Mutex
	n     int           // guarded by mu
	fewer chan struct{} // guarded by mu: closed when there are few again; nil while there are
}

const mostLeft = 16

func (l *Left) few(ctx context.Context) error {
	for l != nil {
		l.mu.Lock()
		if l.n < mostLeft {
			l.mu.Unlock()
			break
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
	return nil
}

func (l *Left) add(n int) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.n += n; l.n < mostLeft && l.fewer != nil {
		close(l.fewer)
		l.fewer = nil
	}
}

// Outlive runs a decision whose charges are given back if the caller leaves before it ends:
//
//	caller   ask ------- leaves
//	store    decide ---------------- admitted --> given back
//	                     |<-- at most 1 s -->|
//
// A caller who leaves gets the error of ctx at once. The decision goes on for up to a second. Then Outlive calls giveBack with its value,
// unless it failed. A charge that the store makes after that may stay. Outlive returns a panic of decide as an error.
func Outlive[T any](ctx context.Context, left *Left, decide func(context.Context) (T, error), giveBack func(T)) (value T, err error) {
	if err := left.few(ctx); err != nil {
		return value, err
	}
	if ctx.Done() == nil || ctx.Err() != nil {
		return safely(ctx, decide)
	}
	type outcome struct {
		value T
		err   error
	}
	decided, gone := make(chan outcome), make(chan struct{})
	within, cancel := extend(ctx)
	go func() {
		defer cancel()
		value, err := safely(within, decide)
		select {
		case decided <- outcome{value, err}:
		case <-gone:
			if err == nil {
				_, _ = safely(within, func(context.Context) (T, error) { giveBack(value); return value, nil })
			}
			left.add(-1)
		}
	}()
	select {
	case o := <-decided:
		return o.value, o.err
	case <-ctx.Done():
		left.add(1)
		close(gone)
		time.AfterFunc(afterwards, cancel)
		return value, ctx.Err()
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

// extend returns a context that ends a second after the deadline of ctx, for clients that read deadlines. Canceling ctx does not end it.
func extend(ctx context.Context) (context.Context, context.CancelFunc) {
	detached := context.WithValue(context.WithoutCancel(ctx), callerKey{}, ctx)
	if deadline, ok := ctx.Deadline(); ok {
		return context.WithDeadline(detached, deadline.Add(afterwards))
	}
	return context.WithCancel(detached)
}

// callerKey is the key of the caller's context in one that outlives it.
type callerKey struct{}
