// Package coalesce decides concurrent calls together (group commit). It is a decorator of a store behind a network, where a call costs
// one round trip: it makes one round trip for all calls of a key that are waiting, and one for calls of up to 16 keys.
//
// # How
//
// At most one decision of a key is in flight in a process, and one for bookings (below). If there is none, a call goes
// to the store as it is. Calls that arrive during a decision queue, and are decided together after it:
//
//	time ─▶   a ├──────────────┤
//	             b ┄┄┄┄┄┄┄┄┄┄┄┄├──────────────┤        b, c and d are one call with the
//	               c ┄┄┄┄┄┄┄┄┄┄├──────────────┤        sum of their costs
//	                       d ┄┄├──────────────┤
//	                              e ┄┄┄┄┄┄┄┄┄┄├────
//
// There is no timer: the next batch leaves as soon as the callers of the last batch have resumed. The sum is charged as one log entry. If
// the sum has no room, the batch tries again with the calls that fit, in order of arrival, and refuses the others by an answer to their
// own cost. So a batch takes one round trip while there is room, one while there is none, and up to three in between.
//
// # Different keys
//
// If the store can decide several subjects in one round trip (it has a method Gathers, as that of redisstore), batches and single
// calls of different keys travel together. Up to eight round trips to a place of the store, such as a Redis or a slot of a cluster, are
// in flight at once. A further call waits until one of them is over, or until 16 calls wait. Each call has its own answer or error. A
// place that hangs delays no calls to other places. A round trip is canceled once all its callers have left.
//
// # Exact
//
// Each answer of the store is one atomic decision. The calls of a batch get the answers that they would get one after the other at that
// instant, when all of them were waiting. So the limits hold as without this package, and a call is charged at most once. Two things
// differ. A cheap call can be admitted although an earlier, more expensive call of its batch was refused, as if they had come one by
// one. And a result's ResetAfter covers the whole batch.
//
// # Bookings
//
// Calls that may be booked (see [driver.Request]) have batches of their own, so no plain call waits for them. Each booking
// starts at its own instant, so they have no sum: the store decides them one after the other in one round trip, in the
// order in which they came ([driver.CanEach]), at most 64 at a time. Over a store without CanEach, each booking is a round trip.
//
// # What is not joined
//
// Decisions over several subjects, resets and settlements go straight to the store. Peeks, partial calls, and calls under policies that
// have a block or charge refused calls are not added up with other calls of their key. Over failover no calls are added up: failover would
// see the sum of a batch in place of a call's cost, and one error would fail all callers.
package coalesce
