package window

import "context"

// A Holder keeps leases in common for the processes of a region: units that a home store, which may be far away, has charged in advance.
// Each process spends from them, and the holder names the one that fetches the next lease. Instants are the holder's, in microseconds.
//
// The home charged a lease after its fetch began, so its units may be spent until one longest lease after that: the home counts every
// charge for as much longer than the limits say.
type Holder interface {
	// Spend takes the cost of a call from a lease, in one step, and says what the caller does otherwise. It must not be
	// repeated after an error.
	Spend(ctx context.Context, s Spending) (Held, error)
	// Bring reports what came of a fetch, and returns whether the lease is kept; otherwise it is never spent. It is not kept if the
	// fetch is not the last one of its key, or the key was forgotten meanwhile. After an error it must not be repeated: the units are lost.
	Bring(ctx context.Context, e Fetch) (kept bool, err error)
	// Return takes units out of the lease of the fetch that began at an instant, which are not spent any more: all that are left, or
	// those above keep. It returns how many, and zero if there is no such lease any more.
	Return(ctx context.Context, key string, began, keep int64) (units int64, err error)
	// Forget drops all leases of a key, which are not spent any more, and its refusal.
	Forget(ctx context.Context, key string) error
}

// MaxReply is the most bytes of a Reply.
const MaxReply = 1024

// A Spending is a call that asks a Holder for units.
type Spending struct {
	// Key is the subject.
	Key string
	// Cost is the units: at least 1.
	Cost int64
	// Longest is the longest lease, the same in all processes and regions.
	Longest int64
	// Way is how long a fetch takes, as the caller has measured it, or zero if it has not: at most Longest.
	Way int64
	// Again says that the call has asked before: its cost has counted as demand.
	Again bool
}

// A Held is a Holder's answer: the first of Spent, Refused, Down, Alone, Fetch and Wait that is set says what the caller
// does. Fetch may be set beside Spent.
type Held struct {
	// At is the holder's clock.
	At int64
	// Spent says that the cost was taken from the lease that ends first of those that have enough. Left is what is left of
	// that lease. Reply is that of the lease.
	Spent bool
	Left  int64
	// Refused is the time until a lease with enough units starts, or until the home's refusal of such a cost ends. Reply is
	// that of the lease or the refusal.
	Refused int64
	Reply   string
	// ReplyAge is how long ago the reply was brought.
	ReplyAge int64
	// Alone says that the key has so little demand that a lease is of no use: the home decides the call.
	Alone bool
	// Fetch is the units to ask the home for: the demand of one longest lease, and at least twice the cost. The caller fetches a lease
	// of so many, which began At, also when it was Spent, and calls Bring. Until then, or for as long as Patience, no other caller does. Rest
	// is what the home had left when it last answered, or -1.
	Fetch int64
	Rest  int64
	// Wait is when to ask again, because another caller fetches.
	Wait int64
	// Down says that the call cannot be decided: the last fetch failed, and the time that its caller set, Wait, has not passed.
	Down bool
}

// A Fetch is what came of asking the home for a lease.
type Fetch struct {
	Key     string
	Longest int64
	// Began is the At of the Held that named the caller. Zero reports a refusal of a call that asked Alone.
	Began int64
	// Units is the lease, and zero if there is none. Delay is how long after its decision the home charged it (driver.Answer.Delay). The
	// lease starts so long after Bring, and ends so long and a longest lease after Began. It starts a 1,024th of that later, and ends as
	// much earlier: the holder's clock may run faster or slower than the home's by so much.
	Units, Delay int64
	// Refused is the time, from Began or now, for which the home refuses a cost of RefusedCost and more. Zero is no refusal.
	// For so long the refusal of a fetch also keeps callers that get Spent from fetching; that of a call does not.
	Refused, RefusedCost int64
	// Failed is the time, from now, in which no caller starts a fetch, because this one failed. Zero is no failure.
	Failed int64
	// Rest is the units that the home has left, or -1 if that is not known.
	Rest int64
	// Reply is the answer of the home, in a form of the caller's. It is returned with the lease or the refusal.
	Reply string
}

// Patience is how long a Holder waits for a fetch before another caller may fetch: four ways, at least 100 ms and at
// most a longest lease.
func (s *Spending) Patience() int64 {
	return min(max(4*s.Way, 100_000), s.Longest)
}
