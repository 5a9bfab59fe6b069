package redistest_test

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.com/sash/internal/redistest"
	"example.com/sash/redisstore"
)

func TestReplies(t *testing.T) {
	s := redistest.Start(t)
	for _, c := range []struct {
		name string
		args []string
		want any
	}{
		{"a status is a string", []string{"SET", "k", "a\r\nb\x00"}, "OK"},
		{"a bulk string is a string, whatever its bytes", []string{"GET", "k"}, "a\r\nb\x00"},
		{"an empty string is not nil", []string{"ECHO", ""}, ""},
		{"what is missing is nil", []string{"GET", "missing"}, nil},
		{"an integer is an int64", []string{"STRLEN", "k"}, int64(5)},
		{"an array is a slice", []string{"EVAL", "return {1, 'two', {3}, false}", "0"}, []any{int64(1), "two", []any{int64(3)}, nil}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := s.Do(c.args...)
			if err != nil || !reflect.DeepEqual(got, c.want) {
				t.Errorf("Do(%q) = %#v, %v, want %#v", c.args, got, err, c.want)
			}
		})
	}
	if _, err := s.Do("LPUSH", "k", "x"); err == nil || !strings.HasPrefix(err.Error(), "WRONGTYPE ") {
		t.Errorf("an error reply became %v", err)
	}
	echo := redisstore.NewScript("echo", "return ARGV[1]")
	for range 2 { // the server has it the second time
		if got, err := redistest.Scripter(s).Run(t.Context(), echo, nil, "x"); got != "x" || err != nil {
			t.Errorf("a script: %q, %v", got, err)
		}
	}
	for name, server := range map[string]*redistest.Server{"after an error reply": s, "to another process": redistest.Dial(s.Addr())} {
		if got, err := server.Do("PING"); got != "PONG" || err != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func TestArgumentsReachTheServer(t *testing.T) {
	s := redistest.Start(t, "--maxmemory", "3mb", "--requirepass", "secret")
	s.Must(t, "AUTH", "secret")
	got, err := s.Do("CONFIG", "GET", "maxmemory")
	if want := []any{"maxmemory", "3145728"}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("maxmemory: %v, %v", got, err)
	}
	wrong, err := redistest.Run("--no-such-option", "1")
	if err == nil {
		wrong.Stop()
		t.Fatal("a server started")
	}
	if !strings.Contains(err.Error(), "no-such-option") {
		t.Errorf("the error does not have the server's text: %v", err)
	}
}

func TestRestartKeepsTheAddressAndForgets(t *testing.T) {
	s, err := redistest.Run()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	addr, pid := s.Addr(), s.Info(t, "server", "process_id")
	s.Must(t, "SET", "k", "v")
	s.Restart()
	if again := s.Info(t, "server", "process_id"); s.Addr() != addr || again == pid {
		t.Errorf("address %s then %s, process %s then %s", addr, s.Addr(), pid, again)
	}
	if got := s.Must(t, "GET", "k"); got != nil {
		t.Errorf("after a restart: %v", got)
	}
	s.Stop()
	s.Stop()
	if _, err := s.Do("PING"); err == nil {
		t.Error("a stopped server answers")
	}
	s.Restart()
	s.Must(t, "PING")
}

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
