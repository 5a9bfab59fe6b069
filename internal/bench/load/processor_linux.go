package load

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Processor returns a meter of the microseconds of processor time that a process has used.
func Processor(pid int) Meter {
	return func() (float64, error) {
		var used unix.Timespec
		// The clock of a process: clock_getcpuclockid(3) of the C library computes the same number.
		if err := unix.ClockGettime(int32(^pid<<3|2), &used); err != nil {
			return 0, fmt.Errorf("load: the processor time of process %d: %w", pid, err)
		}
		return float64(used.Nano()) / 1e3, nil
	}
}
