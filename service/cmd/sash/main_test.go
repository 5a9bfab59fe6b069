package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// binary is the command, built once as `make run` does.
var binary string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "sash-test-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = os.RemoveAll(dir) }()
		binary = filepath.Join(dir, "sash")
		if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "building sash: %v\n%s", err, out)
			return 1
		}
		return m.Run()
	}())
}

// sash runs the command to its end. The environment holds only what is given.
func sash(t *testing.T, env []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, args...)
	cmd.Env = env
	var out, err bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &err
	var exit *exec.ExitError
	if failed := cmd.Run(); failed != nil && !errors.As(failed, &exit) {
		t.Fatal(failed)
	}
	return cmd.ProcessState.ExitCode(), out.String(), err.String()
}

// A process is a running sash serve.
type process struct {
	cmd    *exec.Cmd
	url    string
	grpc   string // an address
	admin  string // a URL
	greets string // what it said on starting
	logs   *bytes.Buffer
	ended  chan error
}

// serve starts sash serve on free ports and returns when it listens. It ends with the test.
func serve(t *testing.T, args ...string) *process {
	t.Helper()
	return serveIn(t, nil, append([]string{"--addr", "127.0.0.1:0", "--grpc-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0"}, args...)...)
}

// serveIn starts sash serve in an environment that holds only what is given.
func serveIn(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	cmd := exec.Command(binary, append([]string{"serve"}, args...)...)
	cmd.Env = append([]string{}, env...)
	p := &process{cmd: cmd, logs: new(bytes.Buffer), ended: make(chan error, 1)}
	cmd.Stderr = p.logs
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-p.ended
	})
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
		if strings.HasPrefix(strings.TrimSpace(lines.Text()), "curl ") {
			break // the last of it
		}
	}
	go func() {
		for lines.Scan() { // nothing more is due, but the pipe must not fill
		}
		p.ended <- cmd.Wait()
		close(p.ended)
	}()
	if p.url == "" {
		t.Fatalf("it does not say where it listens: %s%s", p.greets, p.logs)
	}
	return p
}

// stop sends SIGTERM and returns how the process ended.
func (p *process) stop(t *testing.T) error {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-p.ended:
		return err
	case <-time.After(15 * time.Second):
		t.Fatal("it does not end on SIGTERM")
		return nil
	}
}
