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

// container starts a container of the image on a free port of this machine, and returns its name and its URL when it is healthy.
func container(t *testing.T, args ...string) (name, url string) {
	t.Helper()
	name = fmt.Sprintf("sash-%d-%d", os.Getpid(), time.Now().UnixNano())
	t.Cleanup(func() { engine(t, "rm", "-f", name) })
	engine(t, append([]string{"run", "-d", "--name", name, "-p", "127.0.0.1::8080"}, args...)...)
	url = "http://" + engine(t, "port", name, "8080/tcp")
	client := http.Client{Timeout: time.Second}
	servertest.Wait(t, "the container does not answer", func() bool {
		res, err := client.Get(url + "/healthcheck")
		if err != nil {
			return false
		}
		_ = res.Body.Close()
		return res.StatusCode == http.StatusOK
	})
	return name, url
}

// answers posts a body twice: the second request is over the limit.
func answers(t *testing.T, url, body string) {
	t.Helper()
	for i, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
		if got, said := post(t, url, body); got != want {
			t.Errorf("call %d of %s: %d %v, want %d", i+1, url, got, said, want)
		}
	}
}

// readable returns a directory with a file, which the user of the image may read.
func readable(t *testing.T, name, text string) string {
	t.Helper()
	dir := filepath.Dir(t.TempDir())
	put(t, filepath.Join(dir, name), text)
	if out, err := exec.Command("chmod", "-R", "a+rX", dir).CombinedOutput(); err != nil {
		t.Fatalf("%s", out)
	}
	return dir
}

// The commands of the Dockerfile's first lines: a configuration is mounted, the service decides, and when the container is
// stopped it drains and ends by itself.
func TestRunImage(t *testing.T) {
	dir := readable(t, "limits.yaml", "domain: d\ndescriptors: [{key: k, limits: [1/1h]}]\n")
	name, url := container(t, "-v", dir+"/limits.yaml:/etc/sash/limits.yaml:ro", "sash")
	answers(t, url+"/v1/allow", subject("d", "k", "v"))
	engine(t, "stop", "-t", "30", name)
	if code, logs := engine(t, "inspect", "--format", "{{.State.ExitCode}}", name), engine(t, "logs",
		name); code != "0" || !strings.Contains(logs, "health is down") {
		t.Errorf("it ended with %s: %s", code, logs)
	}
}

// The image takes the place of the one of Envoy's service, with its command, its variables and its files.
func TestRunImageAsEnvoysService(t *testing.T) {
	root := readable(t, "ratelimit/config/a.yaml", "domain: d\ndescriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 1}}]\n")
	_, socket := redistest.StartUnix(t, "--unixsocketperm", "777")
	if err := os.Chmod(filepath.Dir(socket), 0o755); err != nil {
		t.Fatal(err)
	}
	_, url := container(t, "-v", root+":/data:ro", "-v", filepath.Dir(socket)+":/redis", "-e", "RUNTIME_ROOT=/data", "-e", "RUNTIME_SUBDIRECTORY=ratelimit",
		"-e", "REDIS_SOCKET_TYPE=unix", "-e", "REDIS_URL=/redis/"+filepath.Base(socket), "sash", "/bin/ratelimit")
	answers(t, url+"/json", `{"domain":"d","descriptors":[{"entries":[{"key":"k","value":"v"}]}]}`)
}
