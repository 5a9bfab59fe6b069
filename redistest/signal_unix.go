//go:build unix

package redistest

import (
	"errors"
	"syscall"
)

// Pause stops the process where it is (SIGSTOP): its connections stay open, and it takes what is sent
// without an answer until [Server.Resume]. A paused server can be stopped and restarted.
func (s *Server) Pause() { s.signal(syscall.SIGSTOP) }

// Resume lets a paused server go on.
func (s *Server) Resume() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		s.fail(errors.New("redistest: the server is stopped"))
		return
	}
	if err := s.proc.cmd.Process.Signal(sig); err != nil {
		s.fail(err)
	}
}
