// Package driver defines what a store implements, receives and returns. Programs that only limit calls
// need package sash and a store; authors of stores and of decorators need this one.
//
// A store has one method that decides, Do. It receives a [Batch] of operations on subjects, and writes the answers into it. A
// set of bits, [Powers], says what a store can do. A decorator is a store over a store. It embeds a [Passthrough], and handles
// an operation by what it may charge ([Op.MayCharge]) and what it has charged ([Batch.Charged]), not by its kind:
//
//	type logged struct{ driver.Passthrough }
//
//	func (l *logged) Do(ctx context.Context, b *driver.Batch) error {
//		err := l.Store.Do(ctx, b)
//		for i := range b.Ops {
//			slog.DebugContext(ctx, "done", "key", b.Ops[i].Key, "charged", b.Charged(i), "error", err)
//		}
//		return err
//	}
//
// Times are whole microseconds as int64, since the Unix epoch or as a length: the precision of the Redis
// clock. The package storetest has the conformance suite that every store and decorator passes.
package driver

import (
	"context"
	"errors"
	"reflect"
	"time"
)

// A Store carries out operations on subjects. Implementations are safe for concurrent use.
type Store interface {
	// Do carries out the operations of a batch, and sets their answers: see [Batch]. A batch of one operation is one atomic
	// step, and one round trip where there is a network. Do returns the context's error if the context ends first, [ErrUnsupported] for
	// an operation that needs other Powers, and [ErrApart] for several operations without CanAll or CanAny. After any other error,
	// operations may have been carried out. A store never repeats an operation that may have been.
	//
	// The caller may use the batch and its operations again as soon as Do has returned. So a store that goes on in the background
	// works on a [Batch.Clone].
	Do(ctx context.Context, b *Batch) error
	// Powers returns what the store, with every store behind it, can do besides charging one subject. The set does not change.
	Powers() Powers
}

// Powers are a set of what a store can do.
type Powers uint32

// What a store can do.
const (
	CanAll    Powers = 1 << iota // charge several subjects in one step: mode [All]
	CanAny                       // choose one of several subjects in one step: mode [Any]
	CanEach                      // carry out many charges of one subject in one round trip: mode [Each]
	CanID                        // remember the [Settlement].ID of a charge
	CanBook                      // book, under a policy that is [Policy.Bookable]: see [Request].Within
	CanBlock                     // honour [Policy].Block
	CanTake                      // charges that are Partial or Forced, and [GiveBack]
	CanSettle                    // [Settle]
	CanExtend                    // [Extend]
	CanForget                    // [Forget]
	CanCool                      // [Cool]
	// Substitutes says that a store answers in place of the store behind it, and differently for each call. A decorator that requests
	// one decision for several calls, or units to spend later, cannot use such an answer. Put it behind such a store, not in front.
	Substitutes
)

// A Witness is a store that knows for how long it has waited for its servers. Any other wait of a call is in this process.
type Witness interface {
	// Waits returns for how long the oldest call has been on its way to the servers or back, or 0 if no call is. It must not block.
	Waits() time.Duration
	// Silent names, in words, the servers that have owed an answer for at least d or have no connection, or returns "". It must not block.
	Silent(d time.Duration) string
}

// maxDecorators bounds a chain of decorators, which would be endless if a store unwraps to itself.
const maxDecorators = 64

// Behind returns the first store that is a T, such as a [Witness], among a store and the stores behind it.
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

// Unwrap returns the store behind. Through this method [Behind] finds what a decorator does not offer itself.
func (p Passthrough) Unwrap() Store { return p.Store }

// Nil reports whether a value is nil, or holds a nil pointer, function or the like: an argument that was never set.
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

// Errors that stores return, for errors.Is.
var (
	// ErrUnsupported means that the store does not have the power that the operation needs.
	ErrUnsupported = errors.New("sash: not supported by this store")
	// ErrApart means that a store cannot carry out a batch in one step, because the subjects live in different places, such
	// as slots of a Redis Cluster. Nothing was charged. A limiter then decides the subjects one by one.
	ErrApart = errors.New("sash: the subjects live in different places of the store")
	// ErrRejected means that the store works but cannot decide this call, for example because another program wrote the key. The error
	// says nothing about other calls, and decorators pass it on. Repeating the call does not help, unless the error says so.
	ErrRejected = errors.New("sash: the store works and rejects this call")
)

// Bounds that limiters check before they call a store.
const (
	// MaxKeyLength is the most bytes of a key.
	MaxKeyLength = 512
	// MaxIDLength is the most bytes of the ID of a call.
	MaxIDLength = 128
)

// MaxAhead is the longest time ahead for which a request can be booked: a day, in microseconds.
const MaxAhead = int64(24 * time.Hour / time.Microsecond)

// RepeatTime is how long a store remembers the ID of a call that it charged, from the charge on.
const RepeatTime = 5 * time.Minute
