package redistest

import (
	"os/exec"
	"runtime"
)

// A process is a child process that a goroutine waits for.
type process struct {
	pid  int
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

// spawn starts a command that Linux kills when this process ends. Linux kills a child when the thread that
// started it ends, so a goroutine keeps that thread for as long as the child lives.
func spawn(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, done: make(chan struct{})}
	dieWithParent(cmd)
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // a server that was killed is expected
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	p.pid = cmd.Process.Pid
	return p, nil
}

// kill ends the child, even a paused one, and waits until it has ended.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.done
}
