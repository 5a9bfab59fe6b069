// Package denials answers refused calls from memory while their refusal still holds. A caller that is over
// its limit and does not stop then costs the store nothing, and that is when a store needs it.
//
//	store, err := denials.New(goredisstore.New(client, nil), nil)
//
// # Exact
//
// A refusal tells when the same call would be admitted at the earliest, if nobody else comes; others only
// make it later. So until then the answer is known. Only somebody who gives units back could make room
// earlier, so a refusal is kept only when the store says that nobody can (see [driver.Answer].Firm): no charge
// that counts may still be settled. It is kept for the cost that was asked, and for the limits that it was
// asked under: raised limits are asked for anew.
//
// The time counts from when the question was sent, which was before the store decided:
//
//	           sent      decided       received
//	─────────────┼──────────┼─────────────┼───────────────────────────────▶ time
//	             ├──── answered from memory ────┤
//	                        ├──────── RetryAfter ────────┤   room
//
// So nothing is refused that the store would admit, as long as this machine's clock runs as fast as the
// store's. (A store's clock that jumps forward would admit earlier; see the guarantees.) The verdict is what the
// store would say. When there is room is as of the store's answer, with the time that has passed
// taken off: what others did since can only have made it later. What is left is as of that answer too: what has
// left another limit since is not added.
//
// # What an administrator does
//
// A Reset through this store is seen at once. One through another process, and every other loss of state,
// is seen after [Options].MaxAge at the latest: a refusal is not kept longer than that, whatever its
// RetryAfter. As one question a MaxAge and key is next to nothing, MaxAge is short.
//
// # Its place
//
// Behind failover, whose own answers are no store's, and before lease and coalesce: what is answered from memory
// waits for no batch. Before failover it works too, for it keeps only what the store itself has refused; but then
// the time that failover allows does not cover it.
//
// Decisions over several subjects and policies that charge refused calls go straight to the store.
package denials
