// Package denials answers refused calls from memory while their refusal still holds. A caller that is over its limit and
// does not stop then costs the store nothing.
//
// # Exact
//
// A refusal says when the same call would be admitted at the earliest; other calls can only make it later. So until then
// the answer is known. Only units that are given back could make room earlier, so a refusal is kept only if the store
// says that none can be (see [driver.Answer].Firm): no charge that counts may still be settled. A refusal is kept for
// one cost and one policy: after a limit is raised, the store decides again.
//
// The time counts from when the request was sent, which was before the store decided:
//
//	           sent      decided       received
//	─────────────┼──────────┼─────────────┼───────────────────────────────▶ time
//	             ├──── answered from memory ────┤
//	                        ├──────── RetryAfter ────────┤   room
//
// So nothing is refused that the store would admit, as long as this machine's clock runs as fast as the store's. (If the
// store's clock jumps forward, the store admits earlier; see the guarantees.) RetryAfter and the other times are those
// of the store's answer, less the time since: calls of others can only have made them later. Remaining is that of the
// store's answer too, without units that have left other limits since.
//
// # Bookings
//
// The refusal of a booking says at which instant the call would fit behind everybody who booked before. A later booking of
// the same cost is refused from memory if that instant is farther away than it may be booked ahead, and goes to the store
// otherwise. So does a plain call: it may go ahead of the queue. After the refusal of a plain call neither has room before
// its retry time.
//
// # Resets
//
// A Reset through this store takes effect at once. A Reset through another process, and every other loss of state, takes
// effect after maxAge at the latest: no refusal is kept longer, whatever its RetryAfter. It can be short, because one
// request in maxAge for a key costs little.
//
// Calls that take what fits, decisions over several subjects and policies that charge refused calls go straight to the
// store, and under a policy with a block all calls of a subject until it is blocked.
package denials
