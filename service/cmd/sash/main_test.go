package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.com/sash/service/internal/cli"
	"example.com/sash/service/internal/servertest"
)

// binary is the command for tests that need a process: this test binary, which is the command when it is called
// sash or ratelimit, and a client when it is called behave.
var binary string

func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case "sash", "ratelimit":
		main()
	case "behave":
		if err := behave(os.Args[1], os.Args[2]); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	dir, err := os.MkdirTemp("", "sash-test-")
	self, err2 := os.Executable()
	binary = filepath.Join(dir, "sash")
	if err := errors.Join(err, err2, os.Symlink(self, binary)); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// environment looks variables up in NAME=value pairs.
func environment(pairs []string) func(string) string {
	return func(name string) string {
		for _, pair := range pairs {
			if value, ok := strings.CutPrefix(pair, name+"="); ok {
				return value
			}
		}
		return ""
	}
}

// sash runs a command in this process. The environment holds only what is given, and standard input is empty.
func sash(t *testing.T, env []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = cli.Run(t.Context(), args, strings.NewReader(""), &out, &err, environment(env))
	return code, out.String(), err.String()
}

// A service is a running sash serve, in this process or in one of its own.
type service struct {
	url    string
	grpc   string          // an address
	admin  string          // a URL
	greets string          // what it printed when it started
	logs   *servertest.Log // what it writes to standard error
	ended  chan error

	interrupt func() error
	cmd       *exec.Cmd // nil in this process
}

// freePorts are flags of sash serve, which ends without a delay.
var freePorts = []string{"--drain-delay", "0s", "--addr", "127.0.0.1:0", "--grpc-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0"}

// serve runs sash serve in this process on free ports, and returns when it listens. It ends with the test.
func serve(t *testing.T, args ...string) *service {
	t.Helper()
	return serveIn(t, nil, append(freePorts, args...)...)
}

// serveIn runs sash serve in this process, in an environment that holds only what is given.
func serveIn(t *testing.T, env []string, args ...string) *service {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	read, write := io.Pipe()
	s := &service{logs: &servertest.Log{}, ended: make(chan error, 1), interrupt: func() error { stop(); return nil }}
	go func() {
		code := cli.Run(ctx, append([]string{"serve"}, args...), strings.NewReader(""), write, s.logs, environment(env))
		_ = write.Close()
		if code != 0 {
			s.ended <- fmt.Errorf("exit %d", code)
		}
		close(s.ended)
	}()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections() // the service would wait for a request on them
		stop()
		<-s.ended
	})
	s.listens(t, read)
	return s
}

// spawn runs sash serve in a process of its own, on free ports.
func spawn(t *testing.T, env []string, args ...string) *service {
	t.Helper()
	cmd := exec.Command(binary, slices.Concat([]string{"serve"}, freePorts, args)...)
	cmd.Env = append([]string{"GOCOVERDIR=" + os.Getenv("GOCOVERDIR")}, env...)
	return run(t, cmd)
}

func run(t *testing.T, cmd *exec.Cmd) *service {
	t.Helper()
	s := &service{logs: &servertest.Log{}, ended: make(chan error, 1), cmd: cmd}
	s.interrupt = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	if cmd.Stderr == nil {
		cmd.Stderr = s.logs
	}
	stdout := servertest.Must(cmd.StdoutPipe())(t)
	servertest.Check(t, cmd.Start())
	var all <-chan struct{}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		if all == nil { // it printed no address
			_ = cmd.Wait()
			return
		}
		<-s.ended
	})
	all = s.listens(t, stdout)
	go func() {
		<-all // as Wait closes the pipe
		s.ended <- cmd.Wait()
		close(s.ended)
	}()
	return s
}

// printed is the addresses that sash serve prints, in text or in JSON.
var printed = regexp.MustCompile(`(?m)^(?:sash listens on|\{.*"url":") ?([^"\s]+)|^  gRPC +(\S+):|^  admin +(\S+)`)

// listens reads the addresses from standard output, and goes on reading it until it is closed, as the channel is then.
func (p *service) listens(t *testing.T, stdout io.Reader) <-chan struct{} {
	t.Helper()
	last := regexp.MustCompile(`^\{|^ *curl |configuration .*: domains $`) // the last line, of JSON, of rules, and of none
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		p.greets += lines.Text() + "\n"
		if last.MatchString(lines.Text()) {
			break
		}
	}
	for _, found := range printed.FindAllStringSubmatch(p.greets, -1) {
		p.url, p.grpc, p.admin = p.url+found[1], p.grpc+found[2], p.admin+found[3]
	}
	all := make(chan struct{})
	go func() {
		defer close(all)
		for lines.Scan() {
		}
	}()
	if p.url == "" {
		t.Fatalf("no address was printed: %s%s", p.greets, p.logs)
	}
	return all
}

func (p *service) stop(t *testing.T) error {
	t.Helper()
	http.DefaultClient.CloseIdleConnections() // the service would wait for a request on them
	servertest.Check(t, p.interrupt())
	select {
	case err := <-p.ended:
		return err
	case <-time.After(15 * time.Second):
		t.Fatal("the service does not end")
		return nil
	}
}

func (p *service) stopped(t *testing.T) string {
	t.Helper()
	if err := p.stop(t); err != nil {
		t.Errorf("the service ended with %v: %s", err, p.logs)
	}
	return p.logs.String()
}

type httpReply struct {
	StatusCode int
	Status     string
	Header     http.Header
}

// send sends a request with fields of a header, name, value, …, and returns the answer with its body.
func send(t *testing.T, method, url, body string, header ...string) (httpReply, string) {
	t.Helper()
	return sendBy(t, http.DefaultClient, method, url, body, header...)
}

func sendBy(t *testing.T, client *http.Client, method, url, body string, header ...string) (httpReply, string) {
	t.Helper()
	req := servertest.Must(http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body)))(t)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	req.Host = cmp.Or(req.Header.Get("Host"), req.Host)
	res, err := client.Do(req)
	servertest.Check(t, err)
	defer func() { _ = res.Body.Close() }()
	text := servertest.Must(io.ReadAll(res.Body))(t)
	return httpReply{res.StatusCode, res.Status, res.Header}, string(text)
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	res, body := send(t, http.MethodGet, url, "")
	return res.StatusCode, body
}

func post(t *testing.T, url, body string) (int, map[string]any) {
	t.Helper()
	res, text := send(t, http.MethodPost, url, body)
	return res.StatusCode, decode[map[string]any](t, text)
}

func decode[T any](t *testing.T, text string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return v
}

// subject is the JSON of a request of one entry, with more fields, each ",name:value".
func subject(domain, key, value string, more ...string) string {
	return fmt.Sprintf(`{"domain":%q,"entries":[{"key":%q,"value":%q}]%s}`, domain, key, value, strings.Join(more, ""))
}

func readFile(t *testing.T, name string) []byte {
	t.Helper()
	return servertest.Must(os.ReadFile(name))(t)
}

// put writes a file, and makes its directory.
func put(t *testing.T, name, text string) {
	t.Helper()
	servertest.Check(t, os.MkdirAll(filepath.Dir(name), 0o700))
	servertest.Check(t, os.WriteFile(name, []byte(text), 0o600))
}

// tempFile returns a new file in a directory of its own.
func tempFile(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	put(t, file, text)
	return file
}

// freeAddress returns an address with n free ports in a row, below the range that the system gives to outgoing
// connections: there the connections of other tests leave few gaps.
func freeAddress(t *testing.T, n int) string {
	t.Helper()
	for range 100 {
		port, free := 10_000+rand.IntN(20_000), 0
		for i := range n {
			if l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", port+i)); err == nil {
				_ = l.Close()
				free++
			}
		}
		if free == n {
			return fmt.Sprint("127.0.0.1:", port)
		}
	}
	t.Fatal("there are no free ports in a row")
	return ""
}

func portOf(addr string) string { return addr[strings.LastIndex(addr, ":")+1:] }
