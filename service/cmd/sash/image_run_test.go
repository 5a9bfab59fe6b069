//go:build image

package main

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.com/sash/internal/redistest"
	"example.com/sash/service/internal/servertest"
)

// engine runs the container engine of the environment, and returns what it prints.
func engine(t *testing.T, args ...string) string {
	t.Helper()
	line := append(strings.Fields(os.Getenv("ENGINE")), args...)
	if len(line) == len(args) {
		t.Fatal("ENGINE names no container engine: run make test-image")
	}
	out, err := exec.Command(line[0], line[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", line, err, out)
	}
	return strings.TrimSpace(string(out))
}

// The commands of the Dockerfile's first lines: a configuration is mounted, the service decides, and when the container is
// stopped it drains and ends by itself. With the command, the variables and the files of the image of Envoy's service it takes
// its place.
func TestRunImage(t *testing.T) {
	dir := filepath.Dir(t.TempDir()) // which the user of the image may read
	put(t, dir+"/limits.yaml", "domain: d\ndescriptors: [{key: k, limits: [1/1h]}]\n")
	put(t, dir+"/ratelimit/config/a.yaml", "domain: d\ndescriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 1}}]\n")
	sockets, err := os.MkdirTemp("", "sash") //nolint:usetesting // a socket's path has 107 bytes at most; a test's directory can be longer
	servertest.Check(t, err)
	t.Cleanup(func() { os.RemoveAll(sockets) })
	socket := sockets + "/redis.sock"
	redistest.Start(t, "--unixsocket", socket, "--unixsocketperm", "777")
	if out, err := exec.Command("chmod", "-R", "a+rX", dir, filepath.Dir(socket)).CombinedOutput(); err != nil {
		t.Fatalf("%s", out)
	}
	for _, args := range [][]string{
		{"-v", dir + "/limits.yaml:/etc/sash/limits.yaml:ro", "sash"},
		{"-v", dir + ":/data:ro", "-v", filepath.Dir(socket) + ":/redis", "-e", "RUNTIME_ROOT=/data", "-e", "RUNTIME_SUBDIRECTORY=ratelimit",
			"-e", "LOG_LEVEL=info", "-e", "REDIS_SOCKET_TYPE=unix", "-e", "REDIS_URL=/redis/" + filepath.Base(socket), "sash", "/bin/ratelimit"},
	} {
		name := fmt.Sprintf("sash-%d-%d", os.Getpid(), time.Now().UnixNano())
		t.Cleanup(func() { engine(t, "rm", "-f", name) })
		engine(t, append([]string{"run", "-d", "--name", name, "-p", "127.0.0.1::8080"}, args...)...)
		url := "http://" + engine(t, "port", name, "8080/tcp")
		client := http.Client{Timeout: time.Second}
		servertest.Wait(t, "the container does not answer", func() bool {
			res, err := client.Get(url + "/healthcheck")
			if err != nil {
				return false
			}
			_ = res.Body.Close()
			return res.StatusCode == http.StatusOK
		})
		for i, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
			if got, said := post(t, url+"/v1/allow", subject("d", "k", "v")); got != want {
				t.Errorf("call %d of %v: %d %v, want %d", i+1, args, got, said, want)
			}
		}
		engine(t, "stop", "-t", "30", name)
		code, logs := engine(t, "inspect", "--format", "{{.State.ExitCode}}", name), engine(t, "logs", name)
		if code != "0" || !strings.Contains(logs, "health is down") {
			t.Errorf("it ended with %s: %s", code, logs)
		}
	}
}
