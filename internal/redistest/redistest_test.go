package redistest_test

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.com/sash/internal/redistest"
)

func TestNoServerSaysWhatToDo(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv(redistest.EnvServer, "")
	if _, err := redistest.Run(); err == nil || !strings.Contains(err.Error(), "make test") {
		t.Errorf("got %v", err)
	}
	t.Setenv(redistest.EnvServer, "valkey-server")
	if _, err := redistest.Run(); err == nil || !strings.Contains(err.Error(), "valkey-server") {
		t.Errorf("got %v", err)
	}
}

// TestServerDiesWithItsParent runs this test binary again as the parent, kills it, and waits until the server has ended.
func TestServerDiesWithItsParent(t *testing.T) {
	if os.Getenv("SASH_REDISTEST_PARENT") != "" {
		s, err := redistest.Run()
		if err != nil {
			t.Fatal(err)
		}
		os.Stdout.WriteString("addr " + s.Addr() + " pid " + s.Info(t, "server", "process_id") + "\n")
		select {}
	}
	if _, err := os.Stat("/proc/self"); err != nil {
		return // only Linux promises it
	}
	parent := exec.Command(os.Args[0], "-test.run=^TestServerDiesWithItsParent$")
	parent.Env = append(os.Environ(), "SASH_REDISTEST_PARENT=1", "TMPDIR="+t.TempDir())
	out, err := parent.StdoutPipe()
	if err := errors.Join(err, parent.Start()); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	words := strings.Fields(line)
	if err != nil || len(words) != 4 {
		t.Fatalf("the parent said %q, %v", line, err)
	}
	if c, err := net.Dial("tcp", words[1]); err != nil {
		t.Fatal(err)
	} else {
		c.Close()
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		state, err := os.ReadFile(filepath.Join("/proc", words[3], "stat"))
		if err != nil || strings.Contains(string(state), ") Z ") {
			return // gone, or waiting for its new parent to collect it
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %s outlives its parent", words[3])
		}
	}
}

// A command, a benchmark or an example starts a server with Run; a test starts one with Start, which needs no Stop.
func Example() {
	server, err := redistest.Run()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Stop()

	fmt.Println(server.Do("INCRBY", "calls", "3"))
	// Output: 3 <nil>
}
