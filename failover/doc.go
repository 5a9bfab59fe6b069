// Package failover answers in place of a store that is slow or unavailable, within a time budget and by a failure mode chosen beforehand.
//
//	                    in time
//	call --> its turn --> breaker --> store -----------> its answer
//	            |            |         | failed, late
//	      a second     down |         |
//	            v            +-----> mode, by cost --> Open    admitted, not counted
//	      ErrOverload                              --> Local   this process decides over its share
//	                                               --> Closed  an error that is sash.ErrUnavailable
//
// A [Store] is a decorator. It sends the store behind it only as many calls as that store answers in time. Further calls wait, and clients
// take turns ([WithClient]). Once a call is sent, its answer comes within the budget, even if the store ignores contexts. A store that
// fails for longer than [Options].Blip counts as down. Then one call at a time, a caller's own decision, tests whether it is back. An error
// about one call or one key, of the kind [Rejected], shows that the store works: the caller gets it in every mode.
//
// In mode Local a store in memory holds each subject to floor(units / instances) of every limit. Admissions of the other store are
// charged there as well, so a switch does not grant a fresh limit. A call that one store may have charged is not charged to the other.
//
// When the other store is back, local admissions are written to it in the background. While any wait, a goroutine for each part
// probes the store, one call at a time, as a caller would. A charge is written while it still counts in a window. A settlement of a local
// admission corrects the charge while it waits; after that, the difference is [Stats].Doubtful. [Store.Close] writes the rest.
//
// # Bookings
//
// The budget covers only the decision. A caller with a booking then sleeps until the booking starts (see [driver.Request]). While the store
// is unavailable, Closed returns an error, Open admits at once, and Local books this process's share, in order, if the local store books.
// The order over processes, and over the outage, is lost: a caller that books locally may start before one that the store had booked
// earlier.
//
//   - A booking that the store makes after the mode has answered is given back, unless it was also booked locally.
//   - The share counts a booking of the store from when it starts. Giving it back before that does not change the share.
//   - A local booking is written to the store when it starts, or by Close. One with an ID is written at once, because the
//     store remembers IDs for [driver.RepeatTime] only.
//
// # In front of which stores
//
// A [Store] is the outermost decorator (see package stack), so that the budget covers everything that a call waits for, and the call's
// own cost chooses the mode. Answers that other decorators give from memory do not count as signs that the store works.
package failover
