// Package lease decides most calls of a busy key near the caller, over units that a store has leased in advance. Over any
// number of processes and regions it never admits more than the limits, and it may admit less.
//
// With [New] a process keeps leases in its memory, over a store that all processes share:
//
//	store, err := lease.New(goredisstore.New(client, nil), 100*time.Millisecond)
//
// With [Shared] the processes of a region keep leases in common, in a holder beside them, over a home store that may be far
// away and that all regions share:
//
//	store, err := lease.Shared(home, goredisstore.New(near, nil), 3*time.Second, nil)
//
// Every process that decides on a key has to use a lease.Store with the same longest lease, as it has to use the same
// limits: the home counts over longer windows, see below.
//
// # How
//
// The holder of a key knows its leases, the demand, and what the home has last refused. A call spends from a lease in one step. When
// the leases will be used up within the time of two fetches, the holder has one caller fetch: its process asks the home for the next
// lease in the background, and the call itself does not wait. The home decides the first call of a key, and keys with less than two in
// a lease.
//
// A lease is as many units as callers ask for during one longest lease, and at most an eighth of what is left. It is at least what the
// tightest limit gives in an eighth of the longest lease, or in the time of two fetches. A home that books starts leases in the order
// in which it decides: one that does not fit now starts up to one longest lease later, and the holder refuses calls until then. If the
// home refuses, the region knows it until the retry time comes near, at most for two longest leases, because units may come back.
//
// The home decides alone under limits of fewer than 64 units, with [New] 16, under policies with a calendar limit or a block, and under
// those that charge refused calls. It also decides bookings, peeks, partial calls, calls over several subjects and those with an ID. Calls
// that got nothing from two fetches, or have waited for as long as four, go to the home, eight at a time. None waits for over 4 s.
//
// # Never more
//
// Let a lease last at most τ, and let the home count what it charged for W + τ instead of W, for every limit of N units in a window W.
// What is spent in a window (t − W, t] was charged in (t − W − τ, t], and the home charges at most N units in any W + τ.
// docs/regions.md has the proof, with bookings, own shares and clocks of different rates.
//
// The holder's clock and the home's may differ by hours, and run at rates that differ by one part in 1,024. The clock of [New] does
// not jump, but may stop while the machine is suspended: the rest of a lease can then be spent within τ after the machine wakes.
//
// An answer that is lost, a process that dies, or a holder that loses its state loses units: nobody spends them, and they stay charged
// until they leave the window. Units are taken out of a lease, in one step of the holder, before they go back.
//
// A region has one fetch for a key at a time, and one lease that has not started, so every region gets a lease in turn. One that nobody
// calls gives back what it has when its lease ends.
//
// # When the home is silent
//
// A region spends what it holds. Then calls fail at once with sash.ErrUnavailable, also those that only the home decides, and one
// request at a time tests the home, after pauses that grow to four seconds. A failover before this store can answer instead.
//
// # The own share
//
// With [Options].Own each of R regions has s = floor(N · Percent / 100) units of every limit for itself, in its own store, and the
// home has the other N − R·s. The region decides, with the source own, what the home refuses, lets wait or does not answer. Calls
// with an ID, bookings, partial calls and calls over several subjects are the home's alone. See docs/regions.md for changes of R and s.
//
// # And how much less
//
// A caller that never stops gets N units every W + τ: 0.2 % less with a minute and 100 ms, 4.8 % with a lease of a twentieth of the
// window. Unspent units of others are missing for up to τ. RetryAfter is the home's, for the longer window. Units that go back in the
// meantime can make it too late, and for a call that is dearer than the one that the home refused it may be too early.
package lease
