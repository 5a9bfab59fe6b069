package servertest

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"
)

// EndsAtItsBound expects that a port whose only place is taken by a request ends like any other: a client that waits for
// room is disconnected, and the request, which ends after finish is closed, is answered. Full is the log of the port.
func EndsAtItsBound(t testing.TB, addr string, full Lines, stop func() error, finish chan<- struct{}, answered <-chan error) {
	t.Helper()
	waiting, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = waiting.Close() }()
	<-full
	ended := make(chan error, 1)
	go func() { ended <- stop() }()
	_ = waiting.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := waiting.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the client that waits for room: %v", err)
	}
	close(finish)
	if err := <-answered; err != nil {
		t.Errorf("the request in flight: %v", err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("the server does not end")
	}
}
