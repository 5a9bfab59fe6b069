//go:build unix

package redistest

import (
	"errors"
	"syscall"
)

// Pause suspends the process (SIGSTOP). Its connections stay open and receive data, but it answers only
// after [Server.Resume]. A paused server can be stopped and restarted. If the server is stopped, Pause
// fails the test of [Start], and panics for a server of [Run].
func (s *Server) Pause() { s.signal(syscall.SIGSTOP) }

// Resume continues a paused server. It fails as [Server.Pause] does.
func (s *Server) Resume() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		s.fail(errors.New("internal/redistest: the server is stopped"))
		return
	}
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.fail(err)
	}
}
