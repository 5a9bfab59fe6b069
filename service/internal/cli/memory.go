//go:build !sashserver

package cli

import (
	"fmt"
	"math"
	"os"
	"runtime/debug"

	"github.com/dustin/go-humanize"

	"example.com/sash/replay"
)

const (
	// defaultMemory is as much as a quarter of --memory 2GB: about 60 million requests. It is the same everywhere, so that a
	// run does not depend on what else the machine does, and more is of little use: the file stays in the system's memory
	// as long as there is room.
	defaultMemory = 500_000_000
	// leastMemory leaves something for requests beside what the command itself takes.
	leastMemory = 128_000_000
)

// builder returns a builder that takes the memory of --memory. Half of that is for decisions. Without the flag only
// requests are bounded, since a log with very many clients may still fit into the machine.
func (l *logs) builder() (*replay.Builder, error) {
	b := &replay.Builder{Memory: defaultMemory, Folder: spillFolder()}
	if l.memory == "" {
		return b, nil
	}
	size, err := humanize.ParseBytes(l.memory)
	if err != nil || size > math.MaxInt64 {
		return nil, fmt.Errorf("--memory %q: write a size, such as 512MiB or 1GB", l.memory)
	}
	if size < leastMemory {
		return nil, fmt.Errorf("--memory %s is too small: the command needs at least %s", l.memory, humanize.Bytes(leastMemory))
	}
	b.Memory, b.Names = int64(size/4), int64(size/4)
	debug.SetMemoryLimit(min(int64(size), debug.SetMemoryLimit(-1))) // GOMEMLIMIT may be lower
	return b, nil
}

// spillFolder returns the folder that TMPDIR names, or else /var/tmp if there is one, because /tmp is often memory.
func spillFolder() string {
	if info, err := os.Stat("/var/tmp"); os.Getenv("TMPDIR") == "" && err == nil && info.IsDir() {
		return "/var/tmp"
	}
	return os.TempDir()
}
