package driver

import "reflect"

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

// Behind returns the first of a store and those behind it that is a T, such as a [Witness].
func Behind[T any](store Store) (found T, ok bool) {
	for range maxDecorators {
		if found, ok = store.(T); ok {
			return found, true
		}
		d, decorates := store.(interface{ Unwrap() Store })
		if !decorates {
			break
		}
		store = d.Unwrap()
	}
	return found, false
}

// A Passthrough passes everything on to the store behind it. Embed it in a decorator, and define only the methods that differ.
type Passthrough struct{ Store }

// Unwrap returns the store behind it. [Behind] finds what a decorator with this method does not offer itself.
func (p Passthrough) Unwrap() Store { return p.Store }
