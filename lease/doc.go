// Package lease decides most calls of a busy key in memory, over units that the store has leased to this
// process. It admits at most as much as the limits say, from any number of processes, and may admit less.
//
//	store, err := lease.New(goredisstore.New(client, nil), 100*time.Millisecond)
//
// Every process that decides on a key has to do it through a lease.Store with the same longest lease, as
// with the limits themselves: the windows of the store are longer, see below.
//
// # How
//
// When calls of a key come often, one decision charges a block of units, and the process admits calls out
// of it until it is used up, or until the lease ends. Blocks follow the demand: as many units as were asked
// for within the time of a lease, and at most an eighth of what is left, so that other processes find some.
// Where that is not more than the call itself, as for small limits, for those that are nearly exhausted, and
// for keys with few calls, the store decides the call alone. So it does when a call has waited for three blocks
// that others used up. What a lease leaves unspent goes back when it ends, or by [Store.Release].
//
// # Never more
//
// Let a lease last at most τ, and let the store count what it charged for W + τ instead of W, for every
// limit of N units in a window W:
//
//	        g  units are charged                       counted until g + W + τ
//	────────┼──────────┼───────────────────────────────────────┼──────────┼────▶ time
//	        ├─ spent ──┤                                       │
//	                   s ≤ g + τ, which counts until s + W at the latest ─┘
//
// A unit that was charged at g is spent at some s with g ≤ s ≤ g + τ. Take any window (t − W, t] and the
// units that were spent in it: they were charged in (t − W − τ, t], and the store lets no more than N units
// be charged in any W + τ. So no window of length W has more than N.
//
// The time of a lease counts from when the question was sent, which is before g, by a clock that does not
// jump. It has to run as fast as the store's: one that is slower by one part in a thousand lets a unit be spent
// τ/1000 late. On Linux and others it stands still while the machine is suspended: what is left of a lease then can
// be spent within τ after it wakes, however late that is.
//
// # And how much less
//
// A caller who never stops gets N units every W + τ: with a minute and 100 ms that is 0.2 % less. Units that
// lie unspent in other processes are missing for up to τ. A block whose answer is lost stays charged until it
// leaves the window; the next ones are smaller. A result's RetryAfter is the store's, for the
// longer window, and can be too late by what goes back meanwhile.
//
// # Its place
//
// Behind failover and denials, and before coalesce, which joins the calls and blocks that are asked for. Units that
// an unavailable store's policy admitted are not charged anywhere, so they cannot be leased: New refuses a
// store of failover. Blocks may be given back, so while one counts no refusal is firm, and denials has little
// to keep.
//
// Leases are for sliding windows. Policies with a calendar limit, and those that charge refused calls, are
// decided by the store as they are. Decisions over several subjects and looks (Peek) go to the store too.
package lease
