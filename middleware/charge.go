package middleware

import "fmt"

// A Charge says what a layer counts.
type Charge uint8

// The charges. All but Requests are reservations: the middleware charges a request before the handler runs,
// in the same decision as the other layers, and releases the charge after it. So completed and running
// requests together never exceed a limit, over all processes that share the store. The limiter's algorithm
// has to be exact.
//
// Releasing needs a store that settles, as the stores of sash do. It happens also when the client has gone,
// and before the client has the whole response, unless the store takes longer than the timeout or the handler
// has sent the response already. A charge that cannot be released because the store fails expires with its window, and
// the middleware's OnError receives the error. A client that leaves while the store decides is charged nothing (see
// [sash.Limiter.Reserve]), and neither is one that has gone by the time the store has decided: the handler
// does not run.
const (
	// Requests counts every request that is admitted.
	Requests Charge = iota
	// Failures counts the requests whose outcome is Failed, such as wrong passwords. Failures and running
	// attempts together never exceed the limit in a window. So an attempt can be refused because of running
	// ones that later succeed, and the time to retry is then an upper bound. What a response reports counts
	// the attempt itself, whatever its outcome.
	//
	// A middleware that lets requests pass while the store fails (FailOpen) cannot have such a layer.
	Failures
	// InFlight counts the requests whose handler has not returned, such as streams. Its one limit has the
	// most requests in flight as Units and the longest time that a request may take as Window: a request of
	// a process that died counts until then, and one that takes longer no longer counts. A request in flight
	// may end at any moment, so the time to retry is a second, or that of a [sash.Block].
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
