package driver

// A Recaller is a store that knows some answers already, such as refusals that still hold. A [Passthrough] does not pass
// Recall on: a decorator that changes what Decide does would not see the calls that it answers.
type Recaller interface {
	Store
	// Recall returns the answer that Decide would give without asking another store, or false if there is none. It does
	// not block.
	Recall(req Request) (Answer, bool)
}
