// Package rivals measures Sash beside limiters of other languages, on the same machine and the same redis-server, in
// alternating rounds. Each language has a program of its own in a folder below this one, with its versions
// pinned. Sash, what this module requires and services over gRPC take part through a program in Go, by the same rules.
//
// # Programs
//
// A [Program] names the folder, the command that installs it and the command that starts it. Both run in a copy of the
// folder below bin/, so nothing is installed or built anywhere else. The command that starts must be the program itself
// and no shell or launcher around it, because the harness ends it by its process ID. It has two more arguments:
//
//	HOST:PORT of Redis      where the contenders decide
//	HOST:PORT of sash serve  over RESP, on the same Redis; every client may bring limits along
//
// # Protocol
//
// The program reads JSON objects from standard input and writes one to standard output for each, a line each, in order.
// Standard error is passed on. First, unasked, it writes what it is:
//
//	{"runtime": "Python 3.11.7", "contenders": [{"name": "limits, moving window", "version": "5.8.0"}, …]}
//
// A contender is an algorithm of a library; its name is unique over all programs and begins with the library's. A client
// of sash serve is one more: {"name": "Sash over RESP, redis-py", "version": "8.1.0"}, with the client's version. Then come
// operations, one at a time. Each is on one contender and one limit, of units per window; a window is a whole number of
// seconds. Every decision asks for one unit.
//
// One decision on a key, which the contender may put its own prefix before:
//
//	{"op": "ask", "contender": "limits, moving window", "key": "k", "units": 100, "window_ms": 1000}
//	{"allowed": true}
//
// Decisions for a time, on keys that are chosen at random from prefix:0 to prefix:999, all equally likely, by so many
// callers at once, each of which makes its next decision as soon as it has the last one's answer:
//
//	{"op": "load", "contender": …, "prefix": "p", "keys": 1000, "units": 10000, "window_ms": 60000, "callers": 64, "for_ms": 250}
//	{"decisions": 5120, "admitted": 5120, "errors": 0, "ms": 250.4, "p50_us": 3080, "p99_us": 9120}
//
// Callers are what a user of the language would have: goroutines, threads, virtual threads, or promises of one event
// loop. No caller starts a decision after for_ms, and all decisions that were started are counted: decisions are those
// with an answer, errors those without, and ms is the time from the first start to the last answer. The percentiles are of
// all decisions, in microseconds, including whatever the library does before and after it talks to Redis. The program opens
// its connections before it counts, with the library's own defaults for pools where it has any, and at least as many
// connections as callers where each call takes one. It needs no warm-up of its own: the harness sends a load that it does
// not count before every load that it does. Redis is emptied between operations: scripts stay loaded.
//
// Whatever cannot be done is answered with {"error": "the reason"}. The program ends at the end of its input.
package rivals
