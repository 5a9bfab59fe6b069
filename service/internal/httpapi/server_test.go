package httpapi

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
)

func TestServeLetsRequestsInFlightFinish(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	inside, finish := make(chan struct{}), make(chan struct{})
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(inside)
		<-finish
		_, _ = io.WriteString(w, "done")
	})
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, listener, handler, slog.New(slog.NewTextHandler(io.Discard, nil))) }()

	answered := make(chan string, 1)
	go func() {
		res, err := http.Get("http://" + listener.Addr().String())
		if err != nil {
			answered <- err.Error()
			return
		}
		defer func() { _ = res.Body.Close() }()
		body, _ := io.ReadAll(res.Body)
		answered <- string(body)
	}()
	<-inside
	stop()
	for { // the listener closes first
		c, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			break
		}
		_ = c.Close()
	}
	select {
	case err := <-served:
		t.Fatalf("it ended before the request in flight: %v", err)
	default:
	}
	close(finish)
	if got := <-answered; got != "done" {
		t.Errorf("the request in flight got %q", got)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}
