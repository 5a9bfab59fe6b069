package driver

import (
	"context"
	"fmt"
	"reflect"
	"time"
)

// A Decorator is a store that works on top of another store. A limiter uses a power of it, such as settling, only
// when every store behind it has that power too. So a decorator implements all powers that it can pass on: see
// [Passthrough].
type Decorator interface {
	Store
	// Unwrap returns the store behind it.
	Unwrap() Store
}

// Nil reports whether a value is nil, or holds a nil pointer, function or the like: an argument that was never set, as
// constructors see it.
func Nil(value any) bool {
	v := reflect.ValueOf(value)
	switch v.Kind() {
	case reflect.Invalid:
		return true
	case reflect.Pointer, reflect.Func, reflect.Map, reflect.Chan, reflect.Slice, reflect.UnsafePointer:
		return v.IsNil()
	}
	return false
}

// maxDecorators bounds a chain of decorators, in which a store that unwraps to itself would be endless.
const maxDecorators = 64

// As returns the store as a T, and true, if the store and every store behind it implement T. Only then can that power
// be used.
func As[T any](store Store) (T, bool) {
	var none T
	first, ok := store.(T)
	for n := 0; ok && n < maxDecorators; n++ {
		d, decorates := store.(Decorator)
		if !decorates {
			return first, true
		}
		store = d.Unwrap()
		_, ok = store.(T)
	}
	return none, false
}

// A Substitute is a decorator that may answer in place of the store behind it, differently for each call. A
// decorator that requests one decision for several calls, or units to spend later, cannot use such an answer: put it
// behind the Substitute, not in front of it.
type Substitute interface {
	Decorator
	// Substitutes does nothing; it marks the type.
	Substitutes()
}

// Substituted reports whether a store, or any store behind it, is a Substitute.
func Substituted(store Store) bool {
	_, ok := first[Substitute](store)
	return ok
}

// Silent returns what a store, or the first store behind it that is a [Witness], says of its servers.
func Silent(store Store, d time.Duration) string {
	if w, ok := first[Witness](store); ok {
		return w.Silent(d)
	}
	return ""
}

// Waits returns for how long a store, or the first store behind it that is a [Witness], has waited for its servers; known is
// false if there is none.
func Waits(store Store) (waits time.Duration, known bool) {
	if w, ok := first[Witness](store); ok {
		return w.Waits(), true
	}
	return 0, false
}

// first returns the first of a store and those behind it that is a T.
func first[T any](store Store) (found T, ok bool) {
	for range maxDecorators {
		if found, ok = store.(T); ok {
			return found, true
		}
		d, decorates := store.(Decorator)
		if !decorates {
			break
		}
		store = d.Unwrap()
	}
	return found, false
}

// A Passthrough is a Decorator that passes everything on to the store behind it. Embed it in a decorator,
// which then has all powers of that store but [Gatherer] and [Recaller], and define only the methods that differ.
type Passthrough struct {
	// Next is the store behind it.
	Next Store
}

// Unwrap implements [Decorator].
func (p Passthrough) Unwrap() Store { return p.Next }

// Decide implements [Store].
func (p Passthrough) Decide(ctx context.Context, req Request) (Answer, error) {
	return p.Next.Decide(ctx, req)
}

// DecideAll implements [MultiStore]. The error is [ErrApart] when the store behind it does not: a limiter
// then decides the requests one by one.
func (p Passthrough) DecideAll(ctx context.Context, reqs []Request) ([]Answer, error) {
	if next, ok := p.Next.(MultiStore); ok {
		return next.DecideAll(ctx, reqs)
	}
	return nil, ErrApart
}

// DecideAny implements [Chooser]. The error is [ErrApart] when the store behind it does not: a limiter then looks at the
// subjects one by one.
func (p Passthrough) DecideAny(ctx context.Context, reqs []Request) (int, Answer, error) {
	if next, ok := p.Next.(Chooser); ok {
		return next.DecideAny(ctx, reqs)
	}
	return 0, Answer{}, ErrApart
}

// DecideOnce implements [Deduplicator]. The error is [ErrUnsupported] when the store behind it does not.
func (p Passthrough) DecideOnce(ctx context.Context, id string, req Request) (Answer, error) {
	if next, ok := p.Next.(Deduplicator); ok {
		return next.DecideOnce(ctx, id, req)
	}
	return Answer{}, ErrUnsupported
}

// Books implements [Booker]: it reports whether the store behind it books.
func (p Passthrough) Books(policy *Policy) bool { return CanBook(p.Next, policy) }

// Blocks implements [Blocker].
func (p Passthrough) Blocks() {}

// DecideEach implements [Batcher]. When the store behind it does not, it decides the requests in as many calls.
func (p Passthrough) DecideEach(ctx context.Context, reqs []Request) ([]Answer, error) {
	if next, ok := p.Next.(Batcher); ok {
		return next.DecideEach(ctx, reqs)
	}
	answers := make([]Answer, len(reqs))
	for i, req := range reqs {
		var err error
		if answers[i], err = p.Decide(ctx, req); err != nil {
			return nil, err
		}
	}
	return answers, nil
}

// Reward implements [Taker]. The error is [ErrUnsupported] when the store behind it does not.
func (p Passthrough) Reward(ctx context.Context, req Request) (Answer, error) {
	if next, ok := p.Next.(Taker); ok {
		return next.Reward(ctx, req)
	}
	return Answer{}, ErrUnsupported
}

// Settle implements [Settler]. The error is [ErrUnsupported] when the store behind it does not.
func (p Passthrough) Settle(ctx context.Context, sets ...Settlement) error {
	if next, ok := p.Next.(Settler); ok {
		return next.Settle(ctx, sets...)
	}
	return ErrUnsupported
}

// Extend implements [Extender]. The error is [ErrUnsupported] when the store behind it does not.
func (p Passthrough) Extend(ctx context.Context, sets ...Settlement) (int64, error) {
	if next, ok := p.Next.(Extender); ok {
		return next.Extend(ctx, sets...)
	}
	return 0, ErrUnsupported
}

// Reset implements [Resetter]. The error is [ErrUnsupported] when the store behind it does not.
func (p Passthrough) Reset(ctx context.Context, key string, policy *Policy) error {
	if next, ok := p.Next.(Resetter); ok {
		return next.Reset(ctx, key, policy)
	}
	return ErrUnsupported
}

// CoolDown implements [Cooler]. The error is [ErrUnsupported] when the store behind it does not.
func (p Passthrough) CoolDown(ctx context.Context, key string, c CoolDown) (CoolDown, error) {
	if next, ok := p.Next.(Cooler); ok {
		return next.CoolDown(ctx, key, c)
	}
	return CoolDown{}, ErrUnsupported
}

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
