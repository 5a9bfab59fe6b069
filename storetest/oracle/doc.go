// Package oracle answers what a store has to answer, by brute force from the definitions: every charge is
// kept in a plain list, what is in use is a sum over that list, and a time to wait is found by trying.
// Nothing here is shared with the algorithms of the stores, so that the two can only agree by being right.
//
// An [Oracle] is told of every call and of what a store answered, and says what is wrong with the answer.
// [Walk] makes random calls on a store and compares every field of every result with an Oracle.
//
// # Where stores may differ
//
// A store may forget a charge that cannot count any more: one that is older than the longest window that
// its key was charged under, or that is followed by as many units as the largest limit that its key was
// charged under. When the clock goes back, or a later call brings a longer window or a larger limit, such
// a charge would count again by the definition. The oracle then accepts any answer between those with and
// without it. In all other cases there is one right answer.
package oracle
