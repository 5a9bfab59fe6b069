// Package roundtrip has no code, only tests: what the server sides of this repository answer is what its
// client sides understand. Answers of httplimit, in every dialect, drive outgoing.Transport; those of
// grpclimit drive a client that waits for its RetryAfter; and servers in several processes hold one limit.
package roundtrip
