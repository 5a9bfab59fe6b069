// Package stack puts the decorators of a store in their order, in one call.
//
//	store, err := stack.New(goredisstore.New(client, nil), nil)
//
// A call passes them from left to right:
//
//	caller --> failover --> denial cache --> lease --> group commit --> store
//
// Each answers the calls that it can:
//
//   - failover is outermost. Its budget covers everything behind it, and it chooses its mode by the cost of a single call.
//   - The denial cache answers refused callers from memory. Lease alone would ask the store for each call of a limit that is not
//     leased, because it has few units or is one of the calendar: see lease.New.
//   - lease, only with [Options].Lease, spends units that the store charged in advance. A call that it answers waits for no
//     batch.
//   - Group commit is nearest to the store, and decides concurrent calls in one round trip.
//
// By default limits are exact, and a call without an answer within 50 ms is an error. One that is ready to wait
// has a second, and 5 s while the store answers others.
//
// # When not to use it
//
// A store in memory needs no decorator. Put decorators together by hand, in this order, with [DenialCache] and [GroupCommit], for
// leases that the processes of a region share (lease.Shared), for stores with other leases over one group commit, or without
// it, which must not be used over a proxy that sends a script with keys of several servers to the server of the first key.
package stack
