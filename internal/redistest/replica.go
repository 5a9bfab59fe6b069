package redistest

import (
	"net"
	"strings"
	"testing"
	"time"
)

// startTime bounds how long servers may take to find each other.
const startTime = 60 * time.Second

// StartReplica starts a server that replicates the one at an address, directly or through a proxy, and
// stops it when the test ends. It returns when the replica has all data of the primary.
func StartReplica(t testing.TB, of string, args ...string) *Server {
	t.Helper()
	host, port, err := net.SplitHostPort(of)
	if err != nil {
		t.Fatal(err)
	}
	s := Start(t, append([]string{"--replicaof", host, port}, args...)...)
	await(t, "the replica of "+of+" is synchronized", func() bool { return s.linked(t) })
	return s
}

// linked reports whether a replica follows its primary.
func (s *Server) linked(t testing.TB) bool {
	t.Helper()
	return s.Info(t, "replication", "master_link_status") == "up"
}

// Info returns a field of a section of INFO, or "" if there is none.
func (s *Server) Info(t testing.TB, section, field string) string {
	t.Helper()
	text, _ := s.Must(t, "INFO", section).(string)
	return fieldOf(text, field)
}

// fieldOf returns a field of a reply to INFO, or "" if there is none.
func fieldOf(info, name string) string {
	_, after, ok := strings.Cut("\r\n"+info, "\r\n"+name+":")
	if !ok {
		return ""
	}
	value, _, _ := strings.Cut(after, "\r\n")
	return value
}

// Promote makes a replica a primary. It keeps its data.
func (s *Server) Promote(t testing.TB) {
	t.Helper()
	s.Must(t, "REPLICAOF", "NO", "ONE")
}

// await waits until a condition holds, and fails the test if that takes longer than startTime.
func await(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(startTime); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("internal/redistest: after %v it is still not true that %s", startTime, what)
		}
	}
}
