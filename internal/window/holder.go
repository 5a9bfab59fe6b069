package window

import "context"

// A Holder keeps leases for all processes of a region: units that a home store, which may be far away, has charged in advance. Each
// process spends from them, and the holder names the process that fetches the next lease. Instants are the holder's, in microseconds.
//
// The home charges a lease after its fetch began. The units may be spent until one longest lease after the fetch began, because the home
// counts every charge for one longest lease more than the limits say.
type Holder interface {
	// Spend takes the cost of a call from a lease in one step, or returns what the caller has to do instead. It must not be
	// repeated after an error.
	Spend(ctx context.Context, s Spending) (Held, error)
	// Bring records the outcome of a fetch, and reports whether the holder keeps the lease. It keeps none, and spends none, if a later
	// fetch of the key has begun or the key was forgotten meanwhile. After an error Bring must not be repeated: the units are lost.
	Bring(ctx context.Context, e Fetch) (kept bool, err error)
	// Return takes units out of the lease whose fetch began at an instant: all but keep of those left. No call spends them any more.
	// It returns how many units it took, and zero if the lease is gone.
	Return(ctx context.Context, key string, began, keep int64) (units int64, err error)
	// Forget drops the refusal and all leases of a key. No call spends them any more.
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
	// Way is how long a fetch takes, as the caller has measured it: at most Longest. Zero means not measured.
	Way int64
	// Again says that the call has asked before, so that its cost has already counted as demand.
	Again bool
}

// A Held is a Holder's answer. The first field set of Spent, Refused, Down, Alone, Fetch and Wait says what the caller
// does. Fetch may be set beside Spent.
type Held struct {
	// At is the holder's clock.
	At int64
	// Spent says that the cost was taken from a lease: of those with enough units, the one that ends first. Left is what is
	// left of that lease, and Reply the reply that came with it.
	Spent bool
	Left  int64
	// Refused is the time until a lease with enough units starts, or until the home's refusal of such a cost ends. Reply is
	// the reply that came with the lease or the refusal.
	Refused int64
	Reply   string
	// ReplyAge is the time since Bring brought the reply.
	ReplyAge int64
	// Alone says that the key has too little demand for a lease: the home decides the call.
	Alone bool
	// Fetch is the units to request from the home: the demand of one longest lease, and at least twice the cost. The caller, even if Spent
	// is set, fetches a lease of this size and calls Bring. The fetch began At. Until Bring, or for the time of Patience, no other caller
	// fetches. Rest is what the home had left when it last answered, or -1.
	Fetch int64
	Rest  int64
	// Wait is when to ask again, because another caller fetches.
	Wait int64
	// Down says that the call cannot be decided: the last fetch failed, and Fetch.Failed has not passed. Wait is the rest of it.
	Down bool
}

// A Fetch is the outcome of a request to the home for a lease.
type Fetch struct {
	Key     string
	Longest int64
	// Began is the At of the Held that asked the caller to fetch. Zero reports the refusal of a call that the home decided Alone.
	Began int64
	// Units is the size of the lease, and zero if there is none. Delay is the driver.Answer.Delay of the home's answer. The lease starts
	// Delay after Bring, and ends Delay and a longest lease after Began. It starts later and ends earlier by a 1,024th of these times,
	// because the holder's clock may run faster or slower than the home's by that much.
	Units, Delay int64
	// Refused is the time, from Began or now, for which the home refuses costs of RefusedCost and more. Zero is no refusal.
	// The refusal of a fetch, unlike that of a call, also keeps callers that get Spent from fetching for that time.
	Refused, RefusedCost int64
	// Failed is the time, from now, in which no caller starts a fetch, because this one failed. Zero is no failure.
	Failed int64
	// Rest is the units that the home has left, or -1 if that is not known.
	Rest int64
	// Reply is the answer of the home, in a form that the caller chooses. A Held returns it with the lease or the refusal.
	Reply string
}

// Patience is how long a Holder waits for a fetch before another caller may fetch: four ways, at least 100 ms and at
// most a longest lease.
func (s *Spending) Patience() int64 {
	return min(max(4*s.Way, 100_000), s.Longest)
}
