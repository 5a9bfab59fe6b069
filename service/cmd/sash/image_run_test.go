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

// engine runs the container engine of the environment, and returns its standard output.
func engine(t *testing.T, args ...string) string {
	t.Helper()
	line := append(strings.Fields(os.Getenv("ENGINE")), args...)
	if len(line) == len(args) {
		t.Fatal("ENGINE names no container engine: run make test-image")
	}
	cmd := exec.Command(line[0], line[1:]...)
	var failed strings.Builder
	cmd.Stderr = &failed
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, failed.String())
	}
	return strings.TrimSpace(string(out))
}

// container starts a container of the image on a free port of this machine, and returns its name and its URL when it is healthy.
func container(t *testing.T, args ...string) (name, url string) {
	t.Helper()
	name = fmt.Sprintf("sash-%d-%d", os.Getpid(), time.Now().UnixNano())
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(logsOf(name))
		}
		engine(t, "rm", "-f", name)
	})
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

// logsOf returns what a container has written.
func logsOf(name string) string {
	out, _ := exec.Command("sh", "-c", os.Getenv("ENGINE")+" logs "+name+" 2>&1").Output() // without a container there is nothing
	return string(out)
}

// answers posts a body until the codes have come.
func answers(t *testing.T, url, body string, codes ...int) {
	t.Helper()
	client := http.Client{Timeout: 10 * time.Second}
	for i, want := range codes {
		res, err := client.Post(url, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("call %d of %s: %d, want %d", i+1, url, res.StatusCode, want)
		}
	}
}

// readable writes a file that the user of the image may read.
func readable(t *testing.T, path, text string) {
	t.Helper()
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if os.Chmod(dir, 0o755) != nil || dir == os.TempDir() || dir == "/" {
			break
		}
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// The commands of the Dockerfile's first lines: a configuration is mounted, the service decides, and when the container is
// stopped it drains and ends by itself.
func TestRunImage(t *testing.T) {
	file := filepath.Join(t.TempDir(), "limits.yaml")
	readable(t, file, "domain: d\ndescriptors: [{key: k, limits: [1/1h]}]\n")
	name, url := container(t, "-v", file+":/etc/sash/limits.yaml:ro", "sash")
	answers(t, url+"/v1/allow", `{"domain":"d","entries":[{"key":"k","value":"v"}]}`, http.StatusOK, http.StatusTooManyRequests)
	engine(t, "stop", "-t", "30", name)
	if code := engine(t, "inspect", "--format", "{{.State.ExitCode}}", name); code != "0" {
		t.Errorf("it ended with %s", code)
	}
	if logs := logsOf(name); !strings.Contains(logs, "health is down") {
		t.Errorf("it did not drain: %s", logs)
	}
}

// The image takes the place of the one of Envoy's service, with its command, its variables and its files.
func TestRunImageAsEnvoysService(t *testing.T) {
	root := t.TempDir()
	readable(t, filepath.Join(root, "ratelimit", "config", "a.yaml"), "domain: d\ndescriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 1}}]\n")
	_, socket := redistest.StartUnix(t, "--unixsocketperm", "777")
	if err := os.Chmod(filepath.Dir(socket), 0o755); err != nil {
		t.Fatal(err)
	}
	_, url := container(t, "-v", root+":/data:ro", "-v", filepath.Dir(socket)+":/redis", "-e", "RUNTIME_ROOT=/data", "-e", "RUNTIME_SUBDIRECTORY=ratelimit",
		"-e", "REDIS_SOCKET_TYPE=unix", "-e", "REDIS_URL=/redis/"+filepath.Base(socket), "sash", "/bin/ratelimit")
	answers(t, url+"/json", `{"domain":"d","descriptors":[{"entries":[{"key":"k","value":"v"}]}]}`, http.StatusOK, http.StatusTooManyRequests)
}
