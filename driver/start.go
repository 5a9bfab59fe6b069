package driver

import "context"

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
