package redistest

import (
	"os/exec"
	"runtime"
)

// A process is a child that was started and is being waited for.
type process struct {
	pid  int
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

// spawn starts a command that the system kills when this process ends. Linux does that when the thread
// that started the child ends, so the thread is kept for as long as the child lives.
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
			_ = cmd.Wait() // a killed server is no news
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	p.pid = cmd.Process.Pid
	return p, nil
}

// kill ends the child, also a stopped one, and waits until it is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.done
}
