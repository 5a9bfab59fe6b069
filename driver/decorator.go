package driver

import "context"

// A Decorator is a store that works on top of another store. A limiter uses a power of it, such as settling, only
// when every store behind it has that power too. So a decorator implements all powers that it can pass on: see
// [Passthrough].
type Decorator interface {
	Store
	// Unwrap returns the store behind it.
	Unwrap() Store
}

// As returns the store as a T, and true, if the store and every store behind it implement T. Only then can that power
// be used.
func As[T any](store Store) (T, bool) {
	first, ok := store.(T)
	for ok {
		d, decorates := store.(Decorator)
		if !decorates {
			return first, true
		}
		store = d.Unwrap()
		_, ok = store.(T)
	}
	var none T
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
	for {
		if _, ok := store.(Substitute); ok {
			return true
		}
		d, decorates := store.(Decorator)
		if !decorates {
			return false
		}
		store = d.Unwrap()
	}
}

// A Passthrough is a Decorator that passes everything on to the store behind it. Embed it in a decorator,
// which then has all powers of that store, and define only the methods that differ.
type Passthrough struct {
	// Next is the store behind it. It must not be nil.
	Next Store
}

var (
	_ Decorator    = Passthrough{}
	_ MultiStore   = Passthrough{}
	_ Deduplicator = Passthrough{}
	_ Settler      = Passthrough{}
	_ Resetter     = Passthrough{}
)

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

// DecideOnce implements [Deduplicator]. The error is [ErrUnsupported] when the store behind it does not.
func (p Passthrough) DecideOnce(ctx context.Context, id string, req Request) (Answer, error) {
	if next, ok := p.Next.(Deduplicator); ok {
		return next.DecideOnce(ctx, id, req)
	}
	return Answer{}, ErrUnsupported
}

// Settle implements [Settler]. The error is [ErrUnsupported] when the store behind it does not.
func (p Passthrough) Settle(ctx context.Context, s Settlement) error {
	if next, ok := p.Next.(Settler); ok {
		return next.Settle(ctx, s)
	}
	return ErrUnsupported
}

// Reset implements [Resetter]. The error is [ErrUnsupported] when the store behind it does not.
func (p Passthrough) Reset(ctx context.Context, key string, policy *Policy) error {
	if next, ok := p.Next.(Resetter); ok {
		return next.Reset(ctx, key, policy)
	}
	return ErrUnsupported
}
