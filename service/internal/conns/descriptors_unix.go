//go:build unix

package conns

import (
	"math"
	"syscall"
)

// descriptors is how many descriptors the process may have. Go has raised the soft limit to the hard one.
func descriptors() uint64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return math.MaxInt32
	}
	return uint64(limit.Cur) //nolint:unconvert // it is signed on some systems
}
