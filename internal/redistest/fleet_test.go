package redistest_test

import (
	"crypto/tls"
	"errors"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.com/sash/internal/redistest"
)

func TestReplicaHasWhatThePrimaryHas(t *testing.T) {
	primary := redistest.Start(t)
	primary.Must(t, "SET", "k", "before")
	replica := redistest.StartReplica(t, primary.Addr())
	if got := replica.Must(t, "GET", "k"); got != "before" {
		t.Errorf("the replica has %v", got)
	}
	if _, err := replica.Do("SET", "k", "x"); err == nil || !strings.HasPrefix(err.Error(), "READONLY ") {
		t.Errorf("a replica took a write: %v", err)
	}
	primary.Stop()
	replica.Promote(t)
	replica.Must(t, "SET", "k", "after")
}

func TestPausedServerAnswersWhenItGoesOn(t *testing.T) {
	s := redistest.Start(t)
	s.Pause()
	answered := make(chan error, 1)
	go func() {
		_, err := s.Do("SET", "k", "v")
		answered <- err
	}()
	select {
	case err := <-answered:
		t.Fatalf("a paused server answered: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	s.Resume()
	if err := <-answered; err != nil {
		t.Error(err)
	}
	s.Pause()
	s.Restart()
	s.Must(t, "PING")
}

func TestSentinelsReplaceAPrimaryThatIsGone(t *testing.T) {
	t.Parallel()
	primary := redistest.Start(t)
	replicas := []*redistest.Server{redistest.StartReplica(t, primary.Addr()), redistest.StartReplica(t, primary.Addr())}
	s := redistest.StartSentinels(t, primary, len(replicas), 500*time.Millisecond)
	if got := s.Primary(t); got != primary.Addr() || len(s.Addrs()) != 3 {
		t.Fatalf("%d sentinels name %s as the primary, want %s", len(s.Addrs()), got, primary.Addr())
	}
	primary.Stop()
	takesOver(t, func() bool { now := s.Primary(t); return now == replicas[0].Addr() || now == replicas[1].Addr() })
}

// takesOver waits until a replica has taken over.
func takesOver(t *testing.T, happened func() bool) {
	t.Helper()
	for deadline := time.Now().Add(60 * time.Second); !happened(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no replica took over")
		}
	}
}

func TestClusterReplacesPrimaries(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, redistest.ClusterOptions{Replicas: 1})
	if len(c.Addrs()) != 6 {
		t.Fatalf("the cluster has nodes %v", c.Addrs())
	}
	home := c.Home(c.Slot(t, "k"))
	to := c.Primaries[home]
	to.Must(t, "SET", "k", "v")
	replica := c.Replicas[home]
	to.Stop()
	takesOver(t, func() bool { got, err := replica.Do("GET", "k"); return err == nil && got == "v" })
}

func TestServersWithTLSAndOnAUnixSocket(t *testing.T) {
	s, config := redistest.StartTLS(t)
	s.Must(t, "PING")
	c, err := tls.Dial("tcp", s.Addr(), config)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if c, err := tls.Dial("tcp", s.Addr(), &tls.Config{ServerName: "localhost"}); err == nil {
		c.Close()
		t.Error("a client that does not trust the certificate connected")
	}
	_, path := redistest.StartUnix(t)
	local, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	local.Close()
}

func TestClockThatMoves(t *testing.T) {
	s, clock := redistest.StartWithClock(t)
	ahead := func() time.Duration {
		t.Helper()
		reply, err := s.Do("EVAL", "local t = redis.call('TIME') return t[1] .. ' ' .. t[2]", "0")
		text, _ := reply.(string)
		sec, usec, _ := strings.Cut(text, " ")
		n, err1 := strconv.ParseInt(sec, 10, 64)
		m, err2 := strconv.ParseInt(usec, 10, 64)
		if err := errors.Join(err, err1, err2); err != nil {
			t.Fatal(err)
		}
		return time.Until(time.Unix(n, m*1000)).Round(10 * time.Second)
	}
	for _, offset := range []time.Duration{0, time.Hour, time.Hour + 999_999_999, -time.Hour - 1, 0} {
		clock.Move(t, offset)
		if got := ahead(); got != offset.Round(10*time.Second) {
			t.Errorf("moved by %v, scripts see a clock that is %v ahead", offset, got)
		}
	}
	s.Must(t, "SET", "k", "v", "PX", "1800000")
	clock.Move(t, time.Hour)
	if got := s.Must(t, "GET", "k"); got != nil {
		t.Errorf("after an hour, a key that expires in half an hour still exists: %v", got)
	}
}

func TestNoCompilerSaysWhatToDo(t *testing.T) {
	if os.Getenv("SASH_REDISTEST_NO_CC") != "" {
		t.Setenv("CC", "no-such-compiler")
		redistest.StartWithClock(t)
	}
	again := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	again.Env = append(os.Environ(), "SASH_REDISTEST_NO_CC=1")
	if out, _ := again.CombinedOutput(); !strings.Contains(string(out), "make test") { // it fails, which is what the text is about
		t.Errorf("without a compiler: %s", out)
	}
}
