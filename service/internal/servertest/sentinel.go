package servertest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"example.com/sash/internal/redistest"
)

// Primary is the name under which the Sentinels watch the primary.
const Primary = "sash-test"

// A Watched is a primary with a replica, and the Sentinels that watch them.
type Watched struct {
	Primary, Replica *redistest.Server
	Sentinels        []*Sentinel
}

// A Sentinel is one Sentinel process.
type Sentinel struct {
	Addr string
	Pid  int
}

// URL is the URL of the primary by its Sentinels.
func (w *Watched) URL() string {
	var addrs []string
	for _, s := range w.Sentinels {
		addrs = append(addrs, s.Addr)
	}
	return "redis+sentinel://" + strings.Join(addrs, ",") + "/" + Primary
}

// StartWatched starts a primary, a replica and three Sentinels, and waits until all know each other. A
// primary that does not answer for half a second is failed over.
func StartWatched(t testing.TB) *Watched {
	t.Helper()
	w := &Watched{Primary: redistest.Start(t, "--repl-diskless-sync-delay", "0")}
	w.Replica = redistest.Start(t, "--replicaof", "127.0.0.1 "+port(t, w.Primary.Addr()), "--repl-diskless-sync-delay", "0")
	Wait(t, "the replica has no link to its primary", func() bool {
		return strings.Contains(Do(t, w.Replica, "INFO", "replication").(string), "master_link_status:up")
	})
	for range 3 {
		w.Sentinels = append(w.Sentinels, startSentinel(t, w.Primary.Addr()))
	}
	for _, s := range w.Sentinels {
		Wait(t, "a Sentinel does not know the others and the replica", func() bool {
			text := ask(s.Addr, "INFO", "sentinel")
			return strings.Contains(text, "slaves=1,sentinels=3")
		})
	}
	return w
}

// Listened returns the Sentinel that a client listens to.
func (w *Watched) Listened(t testing.TB) *Sentinel {
	t.Helper()
	for _, s := range w.Sentinels {
		if strings.Fields(ask(s.Addr, "PUBSUB", "NUMSUB", "+switch-master"))[1] != "0" {
			return s
		}
	}
	t.Fatal("no Sentinel is listened to")
	return nil
}

// ask runs redis-cli and returns what it prints.
func ask(addr string, args ...string) string {
	host, port, _ := net.SplitHostPort(addr)
	out, _ := exec.Command("redis-cli", append([]string{"-h", host, "-p", port}, args...)...).CombinedOutput()
	return string(out)
}

func startSentinel(t testing.TB, primary string) *Sentinel {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &Sentinel{Addr: listener.Addr().String()}
	_ = listener.Close()
	dir := t.TempDir()
	file := filepath.Join(dir, "sentinel.conf")
	text := fmt.Sprintf("port %s\nbind 127.0.0.1\ndir %s\nsentinel monitor %[3]s 127.0.0.1 %[4]s 2\n"+
		"sentinel down-after-milliseconds %[3]s 500\nsentinel failover-timeout %[3]s 3000\n", port(t, s.Addr), dir, Primary, port(t, primary))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("redis-server", file, "--sentinel")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	s.Pid = cmd.Process.Pid
	return s
}
