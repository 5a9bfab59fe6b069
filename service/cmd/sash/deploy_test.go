//go:build deploy

package main

import (
	"bufio"
	"bytes"
	"debug/elf"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The binary of the image runs in a directory that holds nothing else: no library, no zones, no shell. The test does not
// need a container engine, so it does not run the Dockerfile itself.
func TestDeployImageNeedsNothingBesideIt(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("chroot needs root: run make test-deploy as root")
	}
	file := readFile(t, "../../../Dockerfile")
	if !strings.Contains(string(file), "\nFROM scratch\nCOPY sash /sash\nCOPY bin /bin\n") {
		t.Fatal("the Dockerfile does not copy the binary and its other name into an empty image")
	}
	env, _, command := image(t)
	compile := exec.CommandContext(t.Context(), "make", "-C", "../../..", "static")
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("make static: %v\n%s", err, out)
	}
	if to, err := os.Readlink("../../../bin/image/bin/ratelimit"); err != nil || to != "../sash" {
		t.Errorf("/bin/ratelimit is a link to %q: %v", to, err)
	}
	static := readFile(t, "../../../bin/image/sash")
	if most := 25_000_000; len(static) > most {
		t.Errorf("the binary has %d bytes, more than %d", len(static), most)
	}
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "sash"), static, 0o755); err != nil {
		t.Fatal(err)
	}
	parts, err := elf.Open(filepath.Join(root, "sash"))
	if err != nil {
		t.Fatal(err)
	}
	defer parts.Close()
	for _, part := range parts.Progs {
		if part.Type == elf.PT_INTERP {
			t.Error("the binary is not static")
		}
	}
	limits := filepath.Join(root, "etc", "sash", "limits.yaml")
	if err := os.MkdirAll(filepath.Dir(limits), 0o755); err != nil {
		t.Fatal(err)
	}
	text := "domain: d\ndescriptors:\n  - key: k\n    limits: [\"1/day@America/Los_Angeles\"]\n"
	if err := os.WriteFile(limits, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	run := exec.Command("/sash", append(command, "--addr", "127.0.0.1:0", "--grpc-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0")...)
	run.Dir, run.Env = "/", env
	run.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
	var logs bytes.Buffer
	run.Stderr = &logs
	stdout, err := run.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = run.Process.Signal(syscall.SIGTERM)
		if err := run.Wait(); err != nil {
			t.Errorf("it ended with %v\n%s", err, logs.String())
		}
	}()
	var said struct{ URL string }
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &said)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, logs.String())
	}
	client := http.Client{Timeout: 10 * time.Second}
	for i, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
		res, err := client.Post(said.URL+"/v1/allow", "application/json", strings.NewReader(`{"domain":"d","entries":[{"key":"k","value":"v"}]}`))
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("call %d: %d, want %d", i+1, res.StatusCode, want)
		}
	}
}

// systemd accepts every line of the unit.
func TestDeployUnit(t *testing.T) {
	unit := readFile(t, "../../../examples/systemd/sash.service")
	installed := filepath.Join(t.TempDir(), "sash.service")
	text := strings.ReplaceAll(string(unit), "/usr/local/bin/sash", binary)
	if text == string(unit) {
		t.Fatal("the unit does not run /usr/local/bin/sash")
	}
	if err := os.WriteFile(installed, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, bound := range []string{"\nMemoryMax=", "\nEnvironment=GOMEMLIMIT=", "\nTasksMax="} {
		if !strings.Contains(text, bound) {
			t.Errorf("the unit has no %s", strings.TrimSpace(bound))
		}
	}
	if out, err := exec.CommandContext(t.Context(), "systemd-analyze", "verify", installed).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}
