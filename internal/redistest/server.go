// Package redistest starts real redis-server processes on free loopback ports, and stops them. Tests use [Start]; benchmarks,
// commands and examples use [Run].
//
// The program is the redis-server on the PATH, or the one that the environment variable SASH_REDIS_SERVER names, such as
// valkey-server. On Linux a server ends with the process that started it, even if that process is killed.
package redistest

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// EnvServer is the environment variable that names the program to start in place of redis-server.
const EnvServer = "SASH_REDIS_SERVER"

// Ports are below the range that the system gives to outgoing connections, so that no client that reconnects takes the port
// of a server while it restarts. The bus of a cluster, 10000 above, is below that range too.
const (
	lowPort  = 10000
	highPort = 22000
)

// A Server is one running server. It is safe for concurrent use.
type Server struct {
	bin    string
	dir    string
	ownDir bool
	args   []string
	port   int
	dial   func() (net.Conn, error)
	config func() string // returns a configuration file to use in place of the usual arguments; nil for none
	env    []string
	fail   func(error)

	mu   sync.Mutex
	cmd  *exec.Cmd     // guarded by mu; nil when stopped
	done chan struct{} // guarded by mu; closed when it has ended

	talk sync.Mutex // for one command
	conn net.Conn   // guarded by talk; nil when not connected
	read *bufio.Reader
}

// Start starts a server for one test, and stops it when the test ends. The server is empty, persists nothing
// and listens on 127.0.0.1 only. The arguments, such as "--maxmemory", "1mb", win over those of this package.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	s := &Server{dir: t.TempDir(), args: args}
	s.begin(t)
	return s
}

func (s *Server) begin(t testing.TB) {
	t.Helper()
	s.fail = func(err error) {
		t.Helper()
		t.Fatal(err)
	}
	if err := s.first(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
}

// Run is [Start] without a test. The caller stops the server with [Server.Stop].
func Run(args ...string) (*Server, error) {
	dir, err := os.MkdirTemp("", "sash-redis-")
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir, ownDir: true, args: args, fail: func(err error) { panic(err) }}
	if err := s.first(); err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	return s, nil
}

// Addr returns the address of the server, "127.0.0.1:port". A restart does not change it.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// Stop kills the server and waits until it has ended. On a stopped server it does nothing.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kill()
	if s.ownDir {
		os.RemoveAll(s.dir)
	}
}

// Restart kills the server, if it runs, and starts it again on the same port, empty unless the arguments make it persist.
func (s *Server) Restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kill()
	var err error
	for range 20 { // another process may hold the port for a moment
		if err = s.start(); !errors.Is(err, errExited) {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if err != nil {
		s.fail(err)
	}
}

// Do sends a command on a connection of its own and returns the reply: a string, an int64, nil, or a
// []any of these and errors. An error reply is returned as an error with the server's text. After the
// connection failed, the next command opens a new one; no command is sent twice.
func (s *Server) Do(args ...string) (any, error) {
	s.talk.Lock()
	defer s.talk.Unlock()
	if s.conn == nil {
		conn, err := s.dial()
		if err != nil {
			return nil, err
		}
		s.conn, s.read = conn, bufio.NewReader(conn)
	}
	b := fmt.Appendf(nil, "*%d\r\n", len(args)) // as RESP2
	for _, arg := range args {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	var reply any
	_ = s.conn.SetDeadline(time.Now().Add(replyTimeout)) // it fails on a connection that has ended, as Write does
	_, err := s.conn.Write(b)
	if err == nil {
		reply, err = readReply(s.read)
	}
	if err != nil {
		s.conn.Close()
		s.conn = nil
	} else if failed, ok := reply.(error); ok {
		return nil, failed
	}
	return reply, err
}

// Must is [Server.Do] for commands that must succeed: an error fails the test.
func (s *Server) Must(t testing.TB, args ...string) any {
	t.Helper()
	reply, err := s.Do(args...)
	if err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	return reply
}

func (s *Server) first() error {
	name := cmp.Or(os.Getenv(EnvServer), "redis-server")
	var err error
	if s.bin, err = exec.LookPath(name); err != nil {
		return fmt.Errorf("internal/redistest: no %s (see %s): `make test` installs Debian's package redis-server: %w", name, EnvServer, err)
	}
	if s.dial == nil {
		s.dial = func() (net.Conn, error) { return net.DialTimeout("tcp", s.Addr(), replyTimeout) }
	}
	for range 20 {
		s.port = lowPort + rand.IntN(highPort-lowPort)
		ln, lerr := net.Listen("tcp", s.Addr())
		if lerr != nil {
			err = lerr
			continue
		}
		ln.Close()
		if err = s.start(); err == nil || !strings.Contains(err.Error(), "Address already in use") {
			return err
		}
	}
	return err
}

// errExited means that a server ended before it answered.
var errExited = errors.New("internal/redistest: the server ended before it answered")

func (s *Server) start() error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	logName := filepath.Join(s.dir, "server.log")
	log, err := os.Create(logName)
	if err != nil {
		return err
	}
	defer log.Close()
	args := []string{
		"--port", strconv.Itoa(s.port), "--bind", "127.0.0.1", "--dir", s.dir,
		"--save", "", "--appendonly", "no", "--daemonize", "no",
		// Without this a primary waits for more replicas before it sends its data, and a replica gets
		// writes only after its next acknowledgement.
		"--repl-diskless-sync", "no",
	}
	if s.config != nil {
		name := filepath.Join(s.dir, "server.conf")
		if err := os.WriteFile(name, []byte(s.config()), 0o600); err != nil {
			return err
		}
		args = []string{name}
	}
	cmd := exec.Command(s.bin, append(args, s.args...)...)
	cmd.Env = append(os.Environ(), s.env...)
	cmd.Stdout, cmd.Stderr = log, log
	if s.done, err = spawn(cmd); err != nil {
		return fmt.Errorf("internal/redistest: %w", err)
	}
	s.cmd = cmd
	for deadline := time.Now().Add(20 * time.Second); !s.answers(); {
		err = fmt.Errorf("internal/redistest: the server on %s does not answer", s.Addr())
		select {
		case <-s.done:
			err = errExited
		case <-time.After(5 * time.Millisecond):
			if time.Now().Before(deadline) {
				continue
			}
		}
		s.kill()
		text, _ := os.ReadFile(logName)
		return fmt.Errorf("%w: %s", err, text)
	}
	return nil
}

// answers reports whether this server answers on the port, and not another one that took it.
func (s *Server) answers() bool {
	if _, err := s.Do("PING"); err != nil {
		return strings.HasPrefix(err.Error(), "NOAUTH")
	}
	info, err := s.Do("INFO", "server")
	text, _ := info.(string)
	return err == nil && strings.Contains(text, "process_id:"+strconv.Itoa(s.cmd.Process.Pid)+"\r\n")
}

// kill ends the process, even a paused one, and waits until it has ended. The caller holds mu.
func (s *Server) kill() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill() // it may have ended
		<-s.done
		s.cmd = nil
	}
	s.talk.Lock()
	defer s.talk.Unlock()
	if s.conn != nil {
		s.conn.Close()
		s.conn = nil
	}
}

// Pause suspends the process (SIGSTOP). Its connections stay open and receive data, but it answers only after [Server.Resume].
func (s *Server) Pause() { s.signal(syscall.SIGSTOP) }

// Resume continues a paused server.
func (s *Server) Resume() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := errors.New("internal/redistest: the server is stopped")
	if s.cmd != nil {
		err = s.cmd.Process.Signal(sig)
	}
	if err != nil {
		s.fail(err)
	}
}

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
	await(t, "the replica of "+of+" is synchronized", func() bool { return s.Info(t, "replication", "master_link_status") == "up" })
	return s
}

// Info returns a field of a section of INFO, or "" if there is none.
func (s *Server) Info(t testing.TB, section, field string) string {
	t.Helper()
	text, _ := s.Must(t, "INFO", section).(string)
	return fieldOf(text, field)
}

func fieldOf(info, name string) string {
	_, after, _ := strings.Cut("\r\n"+info, "\r\n"+name+":")
	value, _, _ := strings.Cut(after, "\r\n")
	return value
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

// childAttr has Linux kill a child with its parent. On other systems a server outlives a test process that is killed.
var childAttr *syscall.SysProcAttr

// spawn starts a command that Linux kills when this process ends, and returns a channel that is closed when it has ended.
// Linux kills a child when the thread that started it ends, so a goroutine keeps that thread for as long as the child lives.
func spawn(cmd *exec.Cmd) (chan struct{}, error) {
	cmd.SysProcAttr = childAttr
	started, done := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // a server that was killed is expected
			close(done)
		}
	}()
	return done, <-started
}
