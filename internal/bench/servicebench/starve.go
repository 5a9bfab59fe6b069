package servicebench

import (
	"errors"
	"os/exec"
	"runtime"
)

// niceness is that of the service and of what it shares the processors with, so that Redis and the client are well.
const niceness = "10"

// starve keeps every processor busy with four processes. The caller ends them.
func starve() (end func(), err error) {
	var all []*exec.Cmd
	end = func() {
		for _, c := range all {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	}
	for range 4 * runtime.NumCPU() {
		c := exec.Command("nice", "-n", niceness, "sh", "-c", "while :; do :; done")
		if err := c.Start(); err != nil {
			end()
			return nil, errors.Join(errors.New("servicebench: keeping the processors busy"), err)
		}
		all = append(all, c)
	}
	return end, nil
}
