package sash

import (
	"context"

	"example.com/sash/internal/window"
)

// A Request is one call on one subject. Limiters make requests and check them; stores trust them.
type Request struct {
	// Key is the subject: 1 to MaxKeyLength bytes.
	Key string
	// Cost is the units asked for. Zero only looks.
	Cost int64
	// Policy is what the subject is held to. The cost is not above any of its limits.
	Policy *Policy
	// MaySettle says that what is charged may be settled later, so that a refusal of other calls is not
	// [Result.Firm] any more.
	MaySettle bool
}

// A Store decides. One call is one atomic decision, and one round trip where there is a network.
// Implementations are safe for concurrent use. They return the context's error when it ends first, and
// any other error means that the store failed. They never repeat a decision that may have been made.
// The package storetest has the tests that every store passes.
type Store interface {
	// Decide admits the request if every limit has room, and then charges its cost to all of them.
	// A refusal changes nothing, unless the policy counts refused calls.
	Decide(ctx context.Context, req Request) (Result, error)
}

// A Decorator is a store before another one, which it needs for its work. A Limiter credits it with a power,
// such as settling, only when the store behind it has that too: so it has the methods of every power that it
// can pass on.
type Decorator interface {
	Store
	// Unwrap returns the store behind it.
	Unwrap() Store
}

// A Substitute is a decorator that may answer in place of the store behind it, differently for each call. What
// asks for several calls at once, or for units that are spent later, has no use for such an answer: it belongs
// behind the Substitute, not before it.
type Substitute interface {
	Decorator
	// Substitutes does nothing; it tells this decorator from others.
	Substitutes()
}

// Substituted reports whether a store, or one behind it, is a Substitute.
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

// able returns the store as a T if it is one, and so is every store behind it.
func able[T any](store Store) (T, bool) {
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

// A MultiStore decides over several subjects at once, all or nothing.
type MultiStore interface {
	Store
	// DecideAll charges every request if all have room, and none otherwise. It returns one result a
	// request. All requests have the same algorithm, resolution and CountRefused, and no key twice.
	// When the store cannot decide them in one step the error is ErrApart, and nothing was charged.
	DecideAll(ctx context.Context, reqs []Request) ([]Result, error)
}

// A Deduplicator decides once for each ID.
type Deduplicator interface {
	// DecideOnce is Decide for a request that may be repeated. The ID has 1 to MaxIDLength bytes, and
	// names the request among those of its key, algorithm and resolution. A decision that charged is
	// remembered for RepeatTime: within it a repetition charges nothing and gets the same Result. Any other
	// is not remembered. Charging and remembering are one atomic step. It may be repeated after an error.
	DecideOnce(ctx context.Context, id string, req Request) (Result, error)
}

// A Settlement says what an admitted request was worth in the end.
type Settlement struct {
	// Request is what was asked. Its Cost is what was charged.
	Request Request
	// Result is the answer, which admitted the request. Its At tells which charge is meant.
	Result Result
	// Units is what the request was worth: 0 to MaxUnits, less or more than its Cost.
	Units int64
	// ID names the settlement among all: a store applies it once, however often it is asked to. Empty
	// when the caller never repeats it.
	ID string
}

// Expires returns the instant from which the charge no longer counts and settling does nothing, in
// microseconds since the Unix epoch. Stores remember the ID until then.
func (s *Settlement) Expires() int64 {
	policy := s.Request.Policy
	lives := window.Keep(policy.windows)
	if policy.algorithm == SlidingCounter {
		lives *= 2
	}
	return s.Result.At.UnixMicro() + lives
}

// A Settler corrects the charge of an admitted request.
type Settler interface {
	// Settle makes a request's charge worth the settlement's units, at the instant at which it was
	// made: less at once makes room; more is charged whether or not there is room. It does nothing when
	// the charge has left or the store has applied the settlement already, and may be repeated
	// after an error. After a clock that went back, what is more is
	// charged at a later instant than the request was, and less may be given back by another call of
	// the same key, or not at all.
	Settle(ctx context.Context, s Settlement) error
}

// A Resetter forgets a subject.
type Resetter interface {
	// Reset removes every charge of the key under the policy's algorithm.
	Reset(ctx context.Context, key string, policy *Policy) error
}
