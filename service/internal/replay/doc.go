// Package replay runs logged traffic through candidate limits on a virtual clock, with the code that decides in
// production: a [sash.Limiter] over memstore. It reports what each candidate would have refused and to which clients,
// what it would have admitted, and which limits a log suggests.
//
// A [Builder] takes requests in any order and returns a [Trace], which is in time order, in memory. Candidates run over
// one trace in parallel: see [Trace.Run].
//
// [Trace.Demands] measures clients without any limit: the most units that each client requested within any window. A
// sliding limit of n units refuses a client at some point exactly if that is more than n, so one pass yields the whole
// curve from limits to affected clients.
package replay
