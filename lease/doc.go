// Package lease decides most calls of a busy key in memory, over units that the store has leased to this process. Over
// any number of processes it never admits more than the limits, and it may admit less.
//
//	store, err := lease.New(goredisstore.New(client, nil), 100*time.Millisecond)
//
// Every process that decides on a key has to use a lease.Store with the same longest lease, as it has to use the same
// limits: the store counts over longer windows, see below.
//
// # How
//
// When a key has many calls, one decision charges a block of units, and the process admits calls from it until the block
// is used up or the lease ends. Blocks follow the demand: as many units as were requested during one lease, and at most
// an eighth of what is left, so that other processes get some. If that is not more than the call's own cost, as for
// small limits, for nearly exhausted ones and for keys with few calls, the store decides the call alone. It also does so
// after the call has waited for three blocks that others used up. Unspent units go back when the lease ends, or by
// [Store.Release].
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
// A unit that was charged at g is spent at some s with g ≤ s ≤ g + τ. Take any window (t − W, t] and the units that
// were spent in it: they were charged in (t − W − τ, t], and the store charges at most N units in any W + τ. So no
// window of length W has more than N.
//
// A lease starts when its request was sent, which is before g, by a clock that does not jump. That clock has to run as
// fast as the store's: if it is slower by one part in a thousand, a unit can be spent τ/1000 late. On Linux and some
// other systems it stops while the machine is suspended: the rest of a lease can then be spent within τ after the
// machine wakes, however late that is.
//
// # Bookings
//
// The store decides calls that may be booked (see [driver.Booker]), under the longer windows: a booking from a lease would
// go ahead of those of other processes. A booking is charged at the instant at which it starts, so the bound above holds
// for it with s = g. A lease goes on spending what it has charged while bookings lie ahead, because no booking was given
// those units. A new block is a plain call: it is charged if it delays no booking. A caller that waits in order gets its
// turn under the longer windows, so a queue moves N units every W + τ.
//
// # And how much less
//
// A caller that never stops gets N units every W + τ: 0.2 % less with a minute and 100 ms. Unspent units of other
// processes are missing for up to τ. A block whose answer is lost stays charged until it leaves the window, and the next
// blocks are smaller. RetryAfter is the store's, for the longer window. Units that go back in the meantime can make it
// too late.
//
// # Its place
//
// It belongs behind failover and denials, and before coalesce, which joins the requests for calls and blocks. A store of
// failover behind it could answer by a failure mode, and units that were charged nowhere cannot be leased: New returns
// an error. Blocks may be given back, so no refusal is firm while a block counts, and denials keeps few refusals.
//
// Leases are for sliding windows. The store decides alone under policies with a calendar limit or a block and under those
// that charge refused calls, and it decides calls over several subjects, calls that take what fits, and peeks.
package lease
