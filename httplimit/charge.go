package httplimit

import "net/http"

// A Charge says what a layer counts.
type Charge uint8

// What can be counted. Everything but Requests is charged before the handler runs, in the same decision
// as the other layers, and given back after it: what was let in and what is on its way never exceed a
// limit together, over all processes that share the store. So the limiter's algorithm has to be exact.
//
// Giving back needs a store that settles, as those of sash do. It is done also when the client has gone,
// and before the client has the whole answer, unless the handler flushes or the store takes longer than
// Options.Timeout. What cannot be given back because the store fails leaves with its window; Options.OnError
// is told. A client that hangs up while the store decides is charged nothing (see [sash.Limiter.Reserve]),
// and one that has gone by the time it has decided nothing here either: the handler does not run.
const (
	// Requests counts every request that is admitted.
	Requests Charge = iota
	// Failures counts the requests whose outcome is Failed, see [OutcomeFunc], such as wrong passwords.
	// N failures and attempts on their way are never more than N in a window. So an attempt can be
	// refused because of others that are still on their way and would have succeeded, and Retry-After is
	// then an upper bound. The fields of an answer count the attempt itself, whatever came of it.
	//
	// It protects something, so Options.OnUnavailable cannot be FailOpen beside it.
	Failures
	// InFlight counts the requests whose handler has not returned. Its one limit has the most requests
	// in flight as Units and the longest time that a request may take as Window: a request of a process
	// that died is counted until then, and one that takes longer is no longer counted. A connection that
	// a handler hijacks is in flight until the handler returns. Nobody knows when a request in flight
	// ends, so Retry-After is 1 for these.
	InFlight
)

// An Outcome is what came of a request.
type Outcome uint8

// The outcomes.
const (
	Neutral   Outcome = iota // layers of Failures charge nothing
	Failed                   // layers of Failures keep their charge
	Succeeded                // layers of Failures charge nothing; those with ResetOnSuccess forget the subject
)

// An OutcomeFunc tells the outcome of a request from its answer: the status and the header fields that
// the handler sent. A handler that sent no status has sent 200 when it returned, and 500 when it
// panicked; a connection that it hijacked has 101.
//
// A handler that sent nothing because the request's context had ended has not succeeded: its status is 499
// when the client hung up, and 503 at a deadline of the server. Nobody knows how far it came. So a hang-up
// counts as a failure where Outcome is ByStatus: what an attacker ends early is charged like what he sees
// through, and somebody whose connection breaks has used up an attempt of his own.
type OutcomeFunc func(r *http.Request, status int, header http.Header) Outcome

// ByStatus is an [OutcomeFunc] for APIs: a status of 2xx is Succeeded, 4xx but 429 is Failed, also 499 for
// a client that hung up, and the rest is Neutral. It is wrong for a login page that answers a bad password with 200 or a redirect.
func ByStatus(_ *http.Request, status int, _ http.Header) Outcome {
	switch {
	case status >= 200 && status < 300:
		return Succeeded
	case status >= 400 && status < 500 && status != http.StatusTooManyRequests:
		return Failed
	}
	return Neutral
}
