package driver

// A Recaller is a store that knows some answers already, such as refusals that still hold.
type Recaller interface {
	Store
	// Recall returns the answer that Decide would give without asking another store, or false if there is none. It does
	// not block.
	Recall(req Request) (Answer, bool)
}
