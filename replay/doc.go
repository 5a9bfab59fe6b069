// Package replay sends logged traffic through candidate limits, on a virtual clock, with the code that
// decides in production: a [sash.Limiter] over memstore. It tells what each candidate would have refused and
// to whom, what it would have let through, and which limits a log suggests.
//
// A [Builder] takes requests, in any order, and makes a [Trace], which is in time order; requests of the same
// time stay in the order in which they came. A trace takes 32 bytes a request, and each client's and route's
// name once. Candidates run over one trace side by side: see [Trace.Run].
//
// What a client would need is counted too, without any limit: [Trace.Demand] is the most units that each
// client asked for within any window. A client is refused by a sliding limit of n units at some time exactly
// when that is more than n, so one pass gives the whole curve from limit to clients affected.
package replay
