package httplimit

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"
)

// A statusRecorder records the status that a handler sends. It has Flush and Hijack for handlers that assert
// these directly; http.ResponseController reaches all features of the original.
type statusRecorder struct {
	http.ResponseWriter
	status int
}

// WriteHeader records the first final status; informational ones may come before it.
func (s *statusRecorder) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols {
		s.sent(status)
	}
	s.ResponseWriter.WriteHeader(status)
}

// Write makes the status 200 if none was sent before, as net/http does.
func (s *statusRecorder) Write(p []byte) (int, error) {
	s.sent(http.StatusOK)
	return s.ResponseWriter.Write(p)
}

// FlushError sends the header, as net/http does, unless the writer below cannot flush: then a status can
// still come.
func (s *statusRecorder) FlushError() error {
	err := http.NewResponseController(s.ResponseWriter).Flush()
	if !errors.Is(err, http.ErrNotSupported) {
		s.sent(http.StatusOK)
	}
	return err
}

// Flush is FlushError for handlers that want an http.Flusher.
func (s *statusRecorder) Flush() { _ = s.FlushError() }

// Hijack hands the connection over. The recorder does not see what is sent on it.
func (s *statusRecorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(s.ResponseWriter).Hijack()
	if err == nil {
		s.sent(http.StatusSwitchingProtocols)
	}
	return conn, rw, err
}

// Unwrap lets http.ResponseController set deadlines.
func (s *statusRecorder) Unwrap() http.ResponseWriter { return s.ResponseWriter }

func (s *statusRecorder) sent(status int) {
	if s.status == 0 {
		s.status = status
	}
}

// final returns the status of a request; gone is the error of its context. A handler that sent nothing and
// returned has sent 200, if the client was there; one that panicked has failed.
func (s *statusRecorder) final(returned bool, gone error) int {
	switch {
	case s.status != 0:
		return s.status
	case !returned:
		return http.StatusInternalServerError
	case errors.Is(gone, context.DeadlineExceeded):
		return http.StatusServiceUnavailable
	case gone != nil:
		return statusClientClosed
	}
	return http.StatusOK
}
