//go:build envoy || kubernetes || original || prometheus || proxies

package main

import (
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.com/sash/service/internal/servertest"
)

// A process is a neighbour of Sash that runs until the test ends.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	log   *servertest.Log
	ended chan struct{}
}

// start starts a program. If the test fails, its log shows what the program wrote.
func start(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{t: t, cmd: cmd, log: &servertest.Log{}, ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = p.log, p.log, 10*time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // nginx has processes of its own
	servertest.Check(t, cmd.Start())
	go func() {
		_ = cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		p.stop()
		if t.Failed() {
			t.Logf("%s said:\n%s", cmd, p.log)
		}
	})
	return p
}

func (p *process) ready(name string, is func() bool) {
	p.t.Helper()
	servertest.Wait(p.t, name+" does not listen", func() bool {
		select {
		case <-p.ended:
			p.t.Fatalf("%s has ended: %s", name, p.log)
		default:
		}
		return is()
	})
}

func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(10 * time.Second):
		p.t.Errorf("%s does not end on SIGTERM", p.cmd)
	}
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	<-p.ended
}

// edited returns the text with each of from, to, … replaced. Each is there.
func edited(t *testing.T, text string, pairs ...string) string {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(text, pairs[i]) {
			t.Fatalf("%q is not in the example", pairs[i])
		}
		text = strings.ReplaceAll(text, pairs[i], pairs[i+1])
	}
	return text
}
