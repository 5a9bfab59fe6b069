// Package judge says what is right. A [History] of calls is checked against the definition of a limit: no window holds more
// units than the limit, no refusal is needless, and every wait is the shortest. [Fullest] finds the most units in any window,
// also where the instants are uncertain, and [Overtaken] who was overtaken in a queue. The tests use them, and sash verify.
//
// It also computes the right answer of a store by brute force from the definitions: it keeps every
// charge in a plain list, sums that list for the units in use, and finds a time to wait by trying.
// It shares nothing with the algorithms of the stores, so that the two can only agree by being right.
//
// An [Oracle] receives every call with the store's answer, and reports what is wrong with the answer.
// [Walk] makes random calls on a store and compares every field of every result with an Oracle.
//
// # Where stores may differ
//
// A store may forget a charge that cannot count any more: one older than the longest window that its key was
// charged under, or one followed by as many units as the largest limit that its key was charged under. When
// the clock goes back, or a later call has a longer window or a larger limit, such a charge would count again
// by the definition. The oracle then accepts any answer between those with and without it. In all other cases
// there is one right answer.
package judge
