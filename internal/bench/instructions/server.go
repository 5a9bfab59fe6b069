// Package instructions counts the processor's instructions in a decision, with valgrind's callgrind: unlike times, they
// repeat on a machine that does other work.
package instructions

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"example.com/sash/internal/bench/server"
	"example.com/sash/internal/redistest"
)

// clockSource is the clock of the tests, from the directory of this module.
const clockSource = "../../redistest/clock/clock.c"

// A Server is a redis-server under callgrind, which counts what its EVALSHA execute, and whose clock the caller moves.
type Server struct {
	*server.Server
	dir    string
	clock  *os.File
	ahead  time.Duration
	counts int // so many have been read
}

// wrapper starts the server. Callgrind writes a count, and begins anew, whenever the server is sent ECHO.
const wrapper = `#!/bin/sh
LD_PRELOAD=%[1]s/clock.so SASH_CLOCK=%[1]s/offset exec valgrind --tool=callgrind --callgrind-out-file=%[1]s/count \
	--toggle-collect=evalShaCommand --dump-before=echoCommand redis-server "$@"
`

// StartServer starts an empty server. The caller stops it. module is the path of the directory of internal/bench.
func StartServer(module string) (s *Server, err error) {
	s = &Server{}
	if s.dir, err = os.MkdirTemp("", "sash-instructions-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.Stop()
		}
	}()
	if out, err := exec.Command("cc", "-shared", "-fPIC", "-O2", "-o", filepath.Join(s.dir, "clock.so"),
		filepath.Join(module, clockSource)).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("instructions: the server's clock needs a C compiler, cc: %w\n%s", err, out)
	}
	if s.clock, err = os.Create(filepath.Join(s.dir, "offset")); err != nil {
		return nil, err
	}
	if err := s.Tick(0); err != nil {
		return nil, err
	}
	program := filepath.Join(s.dir, "redis-server")
	if err := os.WriteFile(program, fmt.Appendf(nil, wrapper, s.dir), 0o700); err != nil {
		return nil, err
	}
	usual, set := os.LookupEnv(redistest.EnvServer)
	if err := os.Setenv(redistest.EnvServer, program); err != nil {
		return nil, err
	}
	s.Server, err = server.Start()
	if set {
		return s, errors.Join(err, os.Setenv(redistest.EnvServer, usual))
	}
	return s, errors.Join(err, os.Unsetenv(redistest.EnvServer))
}

// Stop ends the server.
func (s *Server) Stop() {
	if s.Server != nil {
		s.Server.Stop()
	}
	if s.clock != nil {
		_ = s.clock.Close()
	}
	_ = os.RemoveAll(s.dir)
}

// Tick moves the server's clock on.
func (s *Server) Tick(by time.Duration) error {
	s.ahead += by
	_, err := s.clock.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(s.ahead)), 0)
	return err
}

var totals = regexp.MustCompile(`(?m)^totals: (\d+)$`)

// Count returns the instructions of the scripts since the last count.
func (s *Server) Count() (float64, error) {
	if err := s.Echo(context.Background(), "count").Err(); err != nil {
		return 0, err
	}
	s.counts++
	text, err := os.ReadFile(filepath.Join(s.dir, "count."+strconv.Itoa(s.counts)))
	if err != nil {
		return 0, fmt.Errorf("instructions: callgrind wrote no count: does this redis-server have symbols? %w", err)
	}
	match := totals.FindSubmatch(text)
	if match == nil {
		return 0, errors.New("instructions: a count of callgrind has no totals")
	}
	return strconv.ParseFloat(string(match[1]), 64)
}
