package redistest

import (
	"cmp"
	_ "embed"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

//go:embed clock/clock.c
var clockSource []byte

// staleTime is longer than a server keeps a time of day that it has read. Valkey 9.1 asks for it once a
// millisecond, and in between counts on from it by the processor's clock.
const staleTime = 2 * time.Millisecond

// A Clock is the time of day of a server, which a test moves. It is safe for concurrent use.
type Clock struct{ file string }

// StartWithClock starts a server with a clock that the test can move while the server runs. Scripts read
// it, and keys expire by it. It needs Linux and a C compiler: cc, or the one that the environment variable
// CC names.
func StartWithClock(t testing.TB, args ...string) (*Server, *Clock) {
	t.Helper()
	dir := t.TempDir()
	c := &Clock{file: filepath.Join(dir, "offset")}
	if err := os.WriteFile(c.file, make([]byte, 8), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &Server{dir: dir, args: args, env: []string{"LD_PRELOAD=" + compile(t, dir), "SASH_CLOCK=" + c.file}}
	s.begin(t)
	return s, c
}

// compile builds the library that a server loads to read the moved clock in place of the system's.
func compile(t testing.TB, dir string) string {
	t.Helper()
	source, library := filepath.Join(dir, "clock.c"), filepath.Join(dir, "clock.so")
	if err := os.WriteFile(source, clockSource, 0o600); err != nil {
		t.Fatal(err)
	}
	cc := cmp.Or(os.Getenv("CC"), "cc")
	out, err := exec.Command(cc, "-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o", library, source).CombinedOutput()
	if err != nil {
		t.Fatalf("internal/redistest: a clock that moves needs a C compiler: run `make test`, which installs one, or install gcc and libc6-dev: %v\n%s", err, out)
	}
	return library
}

// Move sets how far the server's clock is ahead of the system's; a negative duration is behind. When
// it returns, the server has that time.
func (c *Clock) Move(t testing.TB, ahead time.Duration) {
	t.Helper()
	f, err := os.OpenFile(c.file, os.O_WRONLY, 0) // as it is: the server has mapped it
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], uint64(ahead.Nanoseconds()))
	if _, err := f.WriteAt(b[:], 0); err != nil {
		t.Fatal(err)
	}
	time.Sleep(staleTime)
}
