// Package servertest starts Redis servers that work together, for tests of the service: a primary that
// Sentinels watch, and a Cluster with a replica. All end with the test.
package servertest

import (
	"net"
	"testing"
	"time"

	"example.com/sash/internal/redistest"
)

// Wait waits until a condition holds, and fails the test when it does not within 30 seconds.
func Wait(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("after 30 seconds: %s", what)
		}
		<-time.After(20 * time.Millisecond)
	}
}

// Do sends a command that has to succeed.
func Do(t testing.TB, s *redistest.Server, args ...string) any {
	t.Helper()
	reply, err := s.Do(args...)
	if err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	return reply
}

func port(t testing.TB, addr string) string {
	t.Helper()
	_, p, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
