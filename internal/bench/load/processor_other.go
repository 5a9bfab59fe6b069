//go:build !linux

package load

import "github.com/shirou/gopsutil/v4/process"

// Processor returns a meter of the microseconds of processor time that a process has used, in the system's steps.
func Processor(pid int) Meter {
	return func() (float64, error) {
		p, err := process.NewProcess(int32(pid))
		if err != nil {
			return 0, err
		}
		used, err := p.Times()
		if err != nil {
			return 0, err
		}
		return (used.User + used.System) * 1e6, nil
	}
}
