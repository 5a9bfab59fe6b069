package httplimit

import (
	"net/http"

	"example.com/sash/middleware"
)

// A Layer limits requests by one subject. See [middleware.Layer].
type Layer = middleware.Layer[*http.Request]

// A Charge says what a layer counts. See [middleware.Charge].
type Charge = middleware.Charge

// The charges.
const (
	// Requests counts every request that is admitted.
	Requests = middleware.Requests
	// Failures counts the requests whose outcome is Failed, see [OutcomeFunc], such as wrong passwords. The
	// fields of a response count the attempt itself, whatever its outcome. Options.FailOpen is an
	// error beside it.
	Failures = middleware.Failures
	// InFlight counts the requests whose handler has not returned. A connection that a handler hijacks is in
	// flight until the handler returns. Retry-After is 1, unless the subject is blocked.
	InFlight = middleware.InFlight
)

// An Outcome is how a request ended. See [middleware.Outcome].
type Outcome = middleware.Outcome

// The outcomes: see package middleware.
const (
	Neutral   = middleware.Neutral
	Failed    = middleware.Failed
	Succeeded = middleware.Succeeded
)

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
