package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.com/sash/service/internal/cli"
	"example.com/sash/service/internal/servertest"
)

// binary is the command for tests that need a process: this test binary, which is the command when it is called
// sash or ratelimit.
var binary string

func TestMain(m *testing.M) {
	if name := filepath.Base(os.Args[0]); name == "sash" || name == "ratelimit" {
		main()
	}
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "sash-test-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = os.RemoveAll(dir) }()
		binary = filepath.Join(dir, "sash")
		self, err := os.Executable()
		if err == nil {
			err = os.Symlink(self, binary)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

// environment looks variables up in NAME=value pairs.
func environment(pairs []string) func(string) string {
	return func(name string) string {
		for _, pair := range pairs {
			if value, ok := strings.CutPrefix(pair, name+"="); ok {
				return value
			}
		}
		return ""
	}
}

// sash runs a command in this process. The environment holds only what is given, and standard input is empty.
func sash(t *testing.T, env []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return sashReads(t, strings.NewReader(""), env, args...)
}

func sashReads(t *testing.T, in io.Reader, env []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = cli.Run(t.Context(), args, in, &out, &err, environment(env))
	return code, out.String(), err.String()
}

// A service is a running sash serve, in this process or in one of its own.
type service struct {
	url    string
	grpc   string          // an address
	admin  string          // a URL
	greets string          // what it printed when it started
	logs   *servertest.Log // what it writes to standard error
	ended  chan error

	interrupt func() error
	cmd       *exec.Cmd // nil in this process
}

// freePorts are flags of sash serve, which ends without a delay.
var freePorts = []string{"--drain-delay", "0s", "--addr", "127.0.0.1:0", "--grpc-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0"}

// serve runs sash serve in this process on free ports, and returns when it listens. It ends with the test.
func serve(t *testing.T, args ...string) *service {
	t.Helper()
	return serveIn(t, nil, append(freePorts, args...)...)
}

// serveIn runs sash serve in this process, in an environment that holds only what is given.
func serveIn(t *testing.T, env []string, args ...string) *service {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	read, write := io.Pipe()
	s := &service{logs: &servertest.Log{}, ended: make(chan error, 1), interrupt: func() error { stop(); return nil }}
	go func() {
		code := cli.Run(ctx, append([]string{"serve"}, args...), strings.NewReader(""), write, s.logs, environment(env))
		_ = write.Close()
		if code != 0 {
			s.ended <- fmt.Errorf("exit %d", code)
		}
		close(s.ended)
	}()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections() // the service would wait for a request on them
		stop()
		<-s.ended
	})
	s.listens(t, read)
	return s
}

// spawn runs sash serve in a process of its own, on free ports.
func spawn(t *testing.T, env []string, args ...string) *service {
	t.Helper()
	return spawnBy(t, nil, env, args...)
}

// spawnBy runs sash serve by a command that executes its arguments.
func spawnBy(t *testing.T, by, env []string, args ...string) *service {
	t.Helper()
	line := append(append(append(slices.Clip(by), binary, "serve"), freePorts...), args...)
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Env = append([]string{}, env...)
	return run(t, cmd)
}

// run runs a command that is sash serve.
func run(t *testing.T, cmd *exec.Cmd) *service {
	t.Helper()
	s := &service{logs: &servertest.Log{}, ended: make(chan error, 1), cmd: cmd}
	s.interrupt = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Stderr = s.logs
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var all <-chan struct{}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		if all == nil { // it printed no address
			_ = cmd.Wait()
			return
		}
		<-s.ended
	})
	all = s.listens(t, stdout)
	go func() {
		<-all // as Wait closes the pipe
		s.ended <- cmd.Wait()
		close(s.ended)
	}()
	return s
}

// listens reads the addresses from standard output, and goes on reading it until it is closed, as the channel is then.
func (p *service) listens(t *testing.T, stdout io.Reader) <-chan struct{} {
	t.Helper()
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		p.greets += lines.Text() + "\n"
		if url, ok := strings.CutPrefix(lines.Text(), "sash listens on "); ok {
			p.url = url
		}
		if addr, ok := strings.CutPrefix(lines.Text(), "  gRPC "); ok {
			p.grpc, _, _ = strings.Cut(strings.TrimSpace(addr), ": ")
		}
		if url, ok := strings.CutPrefix(lines.Text(), "  admin "); ok {
			p.admin = strings.TrimSpace(url)
		}
		_, none, found := strings.Cut(lines.Text(), "  configuration  ")
		if found && strings.HasSuffix(none, ": domains ") || strings.HasPrefix(strings.TrimSpace(lines.Text()), "curl ") || strings.HasPrefix(lines.Text(), "{") {
			break // the last line, which for no rules is another one, or the only one in JSON
		}
	}
	all := make(chan struct{})
	go func() {
		defer close(all)
		for lines.Scan() {
		}
	}()
	if p.url == "" {
		t.Fatalf("no address was printed: %s%s", p.greets, p.logs)
	}
	return all
}

// stop interrupts the service and returns how it ended.
func (p *service) stop(t *testing.T) error {
	t.Helper()
	http.DefaultClient.CloseIdleConnections() // the service would wait for a request on them
	if err := p.interrupt(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-p.ended:
		return err
	case <-time.After(15 * time.Second):
		t.Fatal("the service does not end")
		return nil
	}
}

func newRequest(t *testing.T, method, url string, body io.Reader) *http.Request {
	t.Helper()
	v, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
