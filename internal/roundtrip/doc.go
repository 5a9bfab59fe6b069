// Package roundtrip has only tests: the client sides of this repository understand the responses of its server
// sides. Responses of httplimit, in every dialect, drive outgoing.Transport; those of grpclimit drive a client
// that waits for its RetryAfter.
package roundtrip
