package httplimit

import (
	"fmt"
	"net/http"
)

// A Charge says what a layer counts.
type Charge uint8

// The charges. All but Requests are reservations: the middleware charges a request before the handler runs,
// in the same decision as the other layers, and releases the charge after it. So completed and running
// requests together never exceed a limit, over all processes that share the store. The limiter's algorithm
// has to be exact.
//
// Releasing needs a store that settles, as the stores of sash do. It happens also when the client has gone,
// and before the client has the whole response, unless the handler flushes or the store takes longer than
// Options.Timeout. A charge that cannot be released because the store fails expires with its window, and
// Options.OnError receives the error. A client that hangs up while the store decides is charged nothing (see
// [sash.Limiter.Reserve]), and neither is one that has gone by the time the store has decided: the handler
// does not run.
const (
	// Requests counts every request that is admitted.
	Requests Charge = iota
	// Failures counts the requests whose outcome is Failed, see [OutcomeFunc], such as wrong passwords.
	// Failures and running attempts together never exceed the limit in a window. So an attempt can be
	// refused because of running ones that later succeed, and Retry-After is then an upper bound. The
	// fields of a response count the attempt itself, whatever its outcome.
	//
	// Options.OnUnavailable cannot be FailOpen beside it.
	Failures
	// InFlight counts the requests whose handler has not returned. Its one limit has the most requests
	// in flight as Units and the longest time that a request may take as Window: a request of a process
	// that died counts until then, and one that takes longer no longer counts. A connection that a handler
	// hijacks is in flight until the handler returns. A request in flight may end at any moment, so
	// Retry-After is 1.
	InFlight
)

var chargeNames = [...]string{Requests: "requests", Failures: "failures", InFlight: "in-flight"}

// String returns "requests", "failures" or "in-flight".
func (c Charge) String() string {
	if int(c) < len(chargeNames) {
		return chargeNames[c]
	}
	return fmt.Sprintf("Charge(%d)", uint8(c))
}

// An Outcome is how a request ended.
type Outcome uint8

// The outcomes.
const (
	Neutral   Outcome = iota // layers of Failures release their charge
	Failed                   // layers of Failures keep their charge
	Succeeded                // layers of Failures release their charge; those with ResetOnSuccess reset the subject
)

var outcomeNames = [...]string{Neutral: "neutral", Failed: "failed", Succeeded: "succeeded"}

// String returns "neutral", "failed" or "succeeded".
func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return fmt.Sprintf("Outcome(%d)", uint8(o))
}

// An OutcomeFunc returns the outcome of a request by its response: the status and the header fields that
// the handler sent. The status of a handler that sent none is 200 when it returned, and 500 when it
// panicked; that of a hijacked connection is 101.
//
// A handler that sent nothing because the request's context had ended has not succeeded: its status is 499
// when the client hung up, and 503 at a deadline of the server. With ByStatus a hang-up counts as a failure,
// because the handler may have got far enough: an attacker gains nothing by ending an attempt early, and a
// user whose connection breaks uses up one of their own attempts.
type OutcomeFunc func(r *http.Request, status int, header http.Header) Outcome

// ByStatus is an [OutcomeFunc] for APIs: a status of 2xx is Succeeded, 4xx but 429 is Failed, including 499
// for a client that hung up, and the rest is Neutral. It is wrong for a login page that answers a bad
// password with 200 or a redirect.
func ByStatus(_ *http.Request, status int, _ http.Header) Outcome {
	switch {
	case status >= 200 && status < 300:
		return Succeeded
	case status >= 400 && status < 500 && status != http.StatusTooManyRequests:
		return Failed
	}
	return Neutral
}
