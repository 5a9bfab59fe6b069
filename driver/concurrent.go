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

// A Starter is a store that can decide without a goroutine of its caller: a decorator that has to answer before the store
// does would otherwise need one for each call. A [Passthrough] does not pass it on: a decorator that changes what Decide does
// would not see the calls that are started.
type Starter interface {
	Store
	// Start begins the decision that Decide would make, and returns. done is called once with what Decide would return, in
	// another goroutine, perhaps before Start returns, or by Leave. It must neither block nor panic. Start returns nil if it
	// began nothing, and does not call done: then the caller uses Decide.
	Start(ctx context.Context, req Request, done func(Answer, error)) Started
}

// A Started decision goes on until its done is called.
type Started interface {
	// Leave says that nobody waits any more, because the context has ended. A decision that is not on its way is not made:
	// its error is that of the context. Leave does nothing after done was called.
	Leave()
}
