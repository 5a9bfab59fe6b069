package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A service without Redis keeps its charges over a restart, and starts with a damaged file.
func TestARestartForgetsNothing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "charged")
	ask := func(p *service) int {
		t.Helper()
		res, err := http.Post(p.url+"/v1/allow", "application/json",
			strings.NewReader(`{"domain":"demo","entries":[{"key":"remote_address","value":"192.0.2.7"}]}`))
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		return res.StatusCode
	}
	p := serve(t, "--snapshot", file)
	for range 1000 {
		if ask(p) != http.StatusOK {
			break
		}
	}
	if err := p.stop(t); err != nil {
		t.Fatal(err, p.logs)
	}
	p = serve(t, "--snapshot", file)
	if status := ask(p); status != http.StatusTooManyRequests {
		t.Errorf("after a restart a subject that was over its limit got %d\n%s", status, p.logs)
	}
	if err := p.stop(t); err != nil {
		t.Fatal(err, p.logs)
	}
	whole := readFile(t, file)
	if err := os.WriteFile(file, whole[:len(whole)-1], 0o600); err != nil {
		t.Fatal(err)
	}
	p = serve(t, "--snapshot", file)
	if status := ask(p); status != http.StatusOK {
		t.Errorf("with a damaged snapshot: %d", status)
	}
	if err := p.stop(t); err != nil || !strings.Contains(p.logs.String(), "damaged") {
		t.Error(err, p.logs)
	}
	if kept, err := os.ReadFile(file + ".damaged"); err != nil || len(kept) != len(whole)-1 {
		t.Errorf("the damaged file was not kept: %v", err)
	}
}

func TestSnapshotsThatCannotBe(t *testing.T) {
	for _, args := range [][]string{
		{"--snapshot", filepath.Join(t.TempDir(), "none", "file")},
		{"--snapshot", t.TempDir()},
		{"--snapshot", filepath.Join(t.TempDir(), "file"), "--redis", "redis://127.0.0.1:1"},
	} {
		code, _, failed := sash(t, nil, append([]string{"serve", "--addr", "127.0.0.1:0", "--grpc-addr", "", "--admin-addr", ""}, args...)...)
		if code != 2 || !strings.Contains(failed, "--snapshot") {
			t.Errorf("%v: exit %d, %s", args, code, failed)
		}
	}
}
