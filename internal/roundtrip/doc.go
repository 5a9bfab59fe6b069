// Package roundtrip has only tests: responses of httplimit, in every dialect, drive outgoing.Transport, so the client side
// of this repository understands its server side.
package roundtrip
