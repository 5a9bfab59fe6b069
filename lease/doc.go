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
// All processes that decide on a key must use a lease.Store with the same longest lease and the same limits: the home
// counts over longer windows, see below.
//
// # How
//
// The holder of a key knows the key's leases, its demand, and the last refusal by the home. A call spends from a lease in one step. When
// the leases will be used up within the time of two fetches, the holder names one caller to fetch. That caller's process requests the
// next lease from the home in the background, and the call itself does not wait. The home decides the first call of a key, and every
// call of a key with fewer than two calls in a lease.
//
// A lease has as many units as callers request during one longest lease, but at most an eighth of what the home has left. It has at
// least what the tightest limit frees in an eighth of the longest lease, or in the time of two fetches. A home that books starts leases
// in the order in which it decides. A lease that does not fit now starts up to one longest lease later, and the holder refuses calls
// until then. The region keeps a refusal by the home until its retry time is near, but for two longest leases at most: units may return.
//
// The home decides every call under limits of fewer than 64 units (16 with [New]), under policies with a calendar limit or a block, and
// under policies that charge refused calls. It also decides bookings, peeks, partial calls, calls with an ID or over several subjects, and,
// eight at a time, calls that got nothing from two fetches or have waited for the time of four. No call waits for more than 4 s.
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
// When an answer is lost, a process dies, or a holder loses its state, some units are lost: nobody spends them, and they stay charged
// until they leave the window. Before units go back to the home, the holder takes them out of the lease in one step.
//
// A region has at most one fetch for a key at a time, and one lease that has not started, so every region gets a lease in turn. A region
// without calls gives back the rest of its lease when the lease ends.
//
// # When the home is silent
//
// A region spends its leases. After that its calls fail at once with sash.ErrUnavailable, as do calls that only the home decides. One
// request at a time tests the home, after pauses that grow to four seconds. A failover store in front of this one can answer instead.
//
// # The own share
//
// With [Options].Own each of R regions has s = floor(N · Percent / 100) units of every limit for itself, in its own store, and the
// home has the other N − R·s. The region decides, with the source own, calls that the home refuses, delays or does not answer. Only
// the home decides bookings, partial calls, and calls with an ID or over several subjects. See docs/regions.md for changes of R and s.
//
// # And how much less
//
// A caller that never stops gets N units every W + τ: 0.2 % less for a minute and leases of 100 ms, and 4.8 % less for leases of a
// twentieth of the window. Units that others leave unspent are missing for up to τ. RetryAfter comes from the home, for the longer window.
// It can be too late if units go back meanwhile, and too early for a call that costs more than the one that the home refused.
package lease
