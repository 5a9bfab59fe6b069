// Package coalesce decides concurrent calls of one key together (group commit). It stands before a store
// with a network in between, where a hot key costs one round trip a call, and makes that one round trip for
// all calls that came meanwhile.
//
//	store := coalesce.New(goredisstore.New(client, nil))
//
// # How
//
// At most one decision of a key is under way in a process. A call that finds none goes to the store
// itself, with nothing added. Calls that come meanwhile queue, and when the answer is there they are
// decided together:
//
//	time ─▶   a ├──────────────┤
//	             b ┄┄┄┄┄┄┄┄┄┄┄┄├──────────────┤        b, c and d are one call with the
//	               c ┄┄┄┄┄┄┄┄┄┄├──────────────┤        sum of their costs
//	                       d ┄┄├──────────────┤
//	                              e ┄┄┄┄┄┄┄┄┄┄├────
//
// There is no timer: the queue is as long as a round trip makes it, and the next call goes out as soon as those
// who were just answered have run, for they often have their next call ready. The sum is charged as one entry of the
// log. When it has no room nothing was charged, and the answer says how many units are left: the calls
// that fit, in the order in which they came, are asked for again, and those that do not are refused by an
// answer to their own cost. So a batch takes one round trip while there is room, one while there is none,
// and up to three between.
//
// # Exact
//
// Each of the store's answers is one atomic decision, and the verdicts of a batch are those of deciding
// its calls one after the other at that instant; all of them were waiting then. So the limits hold as
// without this package, and a call is charged at most once. What differs: of calls that wait at the same
// time a cheap one can be admitted where an earlier, dearer one was refused, as it would be if they came
// one by one; and a result's ResetAfter covers the whole batch.
//
// # Its place
//
// It stands nearest to the store: failover, denials and lease come before it (see [driver.Substitute]). What they
// answer by themselves needs no batch. A store that is behind it and answers by policy, as one of failover
// does, would see the sum of a batch in place of a call's cost, and one error would be everybody's: then no
// calls are joined.
//
// Looks (Peek), decisions over several subjects, policies that charge refused calls, resets and
// settlements go straight to the store.
package coalesce
