package driver

import "context"

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
