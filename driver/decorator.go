package driver

import (
	"context"
	"reflect"
)

// A Decorator is a store that works on top of another store.
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

// Behind returns the first of a store and those behind it that is a T, such as a [Witness] or a [Gatherer].
func Behind[T any](store Store) (found T, ok bool) {
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

// A Passthrough is a Decorator that passes everything on to the store behind it. Embed it in a decorator, and define only the
// methods that differ.
type Passthrough struct {
	// Next is the store behind it.
	Next Store
}

// Unwrap implements [Decorator].
func (p Passthrough) Unwrap() Store { return p.Next }

// Do implements [Store].
func (p Passthrough) Do(ctx context.Context, b *Batch) error { return p.Next.Do(ctx, b) }

// Powers implements [Store].
func (p Passthrough) Powers() Powers { return p.Next.Powers() }

// A Gatherer is a store that carries out charges of different subjects in one round trip, in mode Each. Their policies may differ.
type Gatherer interface {
	Store
	// Gathers reports whether an operation can be one of these, and the place where it is carried out. Operations of one place go
	// together. Places that can fail or hang by themselves are different places. There are few: they are remembered.
	Gathers(op *Op) (place int, ok bool)
}

// A Recaller is a store that knows some answers already, such as refusals that still hold. A [Passthrough] does not pass
// Recall on: a decorator would not see the operations that it answers.
type Recaller interface {
	Store
	// Recall sets the answer that Do would give without asking another store, or returns false if there is none. It does not
	// block.
	Recall(op *Op) bool
}
