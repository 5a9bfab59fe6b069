package sash

import "context"

// A Request is one call on one subject. Limiters make requests and check them; stores trust them.
type Request struct {
	// Key is the subject: 1 to MaxKeyLength bytes.
	Key string
	// Cost is the units asked for. Zero only looks.
	Cost int64
	// Policy is what the subject is held to. The cost is not above any of its limits.
	Policy *Policy
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

// A MultiStore decides over several subjects at once, all or nothing.
type MultiStore interface {
	Store
	// DecideAll charges every request if all have room, and none otherwise. It returns one result a
	// request. All requests have the same algorithm, resolution and CountRefused, and no key twice.
	// When the store cannot decide them in one step the error is ErrApart, and nothing was charged.
	DecideAll(ctx context.Context, reqs []Request) ([]Result, error)
}

// A Refunder takes back the charge of an admitted request.
type Refunder interface {
	// Refund gives back what req was charged with when it was answered by res. It is harmless when the
	// charge has left the window meanwhile. It must be called at most once for a result. After a clock
	// that went back it may take the units from another call of the same key, or give none back.
	Refund(ctx context.Context, req Request, res Result) error
}

// A Resetter forgets a subject.
type Resetter interface {
	// Reset removes every charge of the key under the policy's algorithm.
	Reset(ctx context.Context, key string, policy *Policy) error
}
