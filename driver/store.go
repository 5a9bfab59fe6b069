package driver

import (
	"context"
	"errors"
	"time"
)

// A Store decides. One call is one atomic decision, and one round trip where there is a network.
// Implementations are safe for concurrent use. They return the context's error when it ends first; any
// other error means that the store failed. They never repeat a decision that may have been made.
type Store interface {
	// Decide admits the request if every limit has room, and then charges its cost to all of them.
	// A refusal changes nothing, unless the policy counts refused calls.
	Decide(ctx context.Context, req Request) (Answer, error)
}

// A MultiStore decides over several subjects at once, all or nothing.
type MultiStore interface {
	Store
	// DecideAll charges every request if all have room, and none otherwise. It returns one answer a
	// request. All requests have the same algorithm, resolution and CountRefused, and no key twice.
	// When the store cannot decide them in one step the error is ErrApart, and nothing was charged.
	DecideAll(ctx context.Context, reqs []Request) ([]Answer, error)
}

// A Deduplicator decides once for each ID.
type Deduplicator interface {
	// DecideOnce is Decide for a request that may be repeated. The ID has 1 to MaxIDLength bytes, and
	// names the request among those of its key, algorithm and resolution. A decision that charged is
	// remembered for RepeatTime, or until a reset: within it a repetition charges nothing, whatever its cost and
	// its limits. It gets the same decision, which is the Refusals and At of the first Answer, and the statuses
	// of its own limits as of now. Any other decision is not remembered. Charging and remembering are one atomic
	// step. It may be repeated after an error. A store may bound how many IDs a key remembers.
	DecideOnce(ctx context.Context, id string, req Request) (Answer, error)
}

// A Settler corrects the charge of an admitted request.
type Settler interface {
	// Settle makes a request's charge worth the settlement's units, at the instant at which it was
	// made: less at once makes room; more is charged whether or not there is room. It does nothing when
	// the charge has left the window or was removed by a reset, or when the store has applied the settlement
	// already, and may be repeated after an error. After a clock that went back, what is more is charged at a
	// later instant than the request was, and less may be given back by another call of the same key, or not at
	// all. A store may bound how many IDs a key remembers; what it may have forgotten gives no units back.
	Settle(ctx context.Context, s Settlement) error
}

// A Resetter forgets a subject.
type Resetter interface {
	// Reset removes every charge of the key under the policy's algorithm.
	Reset(ctx context.Context, key string, policy *Policy) error
}

// Errors that stores return, for errors.Is.
var (
	// ErrUnsupported means that the store does not have the power that was asked for.
	ErrUnsupported = errors.New("sash: not supported by this store")
	// ErrApart means that a store cannot decide these subjects in one step, because they live in
	// different places, such as slots of a Redis Cluster. A limiter then decides them one by one.
	ErrApart = errors.New("sash: the subjects live in different places of the store")
	// ErrRejected means that the store works and cannot decide this call: what it holds under the key was not
	// written by it. A decorator passes the error on, and it says nothing about calls on other keys. Repeating the
	// call does not help.
	ErrRejected = errors.New("sash: the store works and rejects this call")
)

// Bounds that limiters check before they ask a store.
const (
	// MaxKeyLength is the most bytes of a key.
	MaxKeyLength = 512
	// MaxIDLength is the most bytes of the ID of a call.
	MaxIDLength = 128
	// MaxSubjects is the most requests of one DecideAll.
	MaxSubjects = 4
)

// RepeatTime is how long a store remembers the ID of a call that it charged, from the charge on.
const RepeatTime = 5 * time.Minute

// A Request is one call on one subject. Limiters make requests and check them; stores trust them.
type Request struct {
	// Key is the subject: 1 to MaxKeyLength bytes.
	Key string
	// Cost is the units asked for. Zero only looks.
	Cost int64
	// Policy holds the limits of the subject. The cost is not above any of them.
	Policy *Policy
	// MaySettle says that the charge may be settled later, so that refusals of other calls are not
	// [Answer.Firm] any more.
	MaySettle bool
}

// A Settlement says what an admitted request was worth in the end.
type Settlement struct {
	// Request is the request. Its Cost is what was charged.
	Request Request
	// At is when the charge was made: [Answer.At] of the answer that admitted the request.
	At int64
	// Source is where that answer came from.
	Source Source
	// Units is what the request was worth: 0 to MaxUnits, less or more than its Cost.
	Units int64
	// ID names the settlement among all: a store applies it once, however often it is repeated. Empty
	// when the caller never repeats it.
	ID string
}

// Expires returns the instant from which the charge no longer counts and settling does nothing. Stores
// remember the ID until then, unless there are too many.
func (s *Settlement) Expires() int64 {
	lives := s.Request.Policy.Longest()
	if s.Request.Policy.Algorithm == SlidingCounter {
		lives *= 2
	}
	return s.At + lives
}
