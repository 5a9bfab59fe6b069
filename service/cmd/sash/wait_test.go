package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"example.com/sash/internal/redistest"
)

// TestAllowWaitsForItsTurn states that commands that can wait start one after the other, in the order in which they were
// booked, and end when they may start.
func TestAllowWaitsForItsTurn(t *testing.T) {
	env := []string{"SASH_REDIS=" + redistest.Start(t).Addr()}
	const window = 700 * time.Millisecond
	limit := []string{"allow", "k", "--limit", "1/700ms", "--wait", "30s", "--json"}
	if code, out, err := sash(t, env, limit...); code != 0 || !strings.Contains(out, `"waited":0`) {
		t.Fatalf("the first: exit %d, %s%s", code, out, err)
	}
	began := time.Now()
	for i := range 2 {
		code, out, err := sash(t, env, limit...)
		var d struct{ Waited float64 }
		if code != 0 || json.Unmarshal([]byte(out), &d) != nil || d.Waited <= 0 || d.Waited > window.Seconds() {
			t.Fatalf("waiter %d: exit %d, %s%s", i, code, out, err)
		}
	}
	if took := time.Since(began); took < window {
		t.Errorf("two more waited for %v together, less than a window", took)
	}
	code, out, _ := sash(t, env, "allow", "k", "--limit", "1/700ms", "--wait", "1ms")
	if code != 1 || !strings.HasPrefix(out, "refused by 1/700ms: 0 units left, retry after ") {
		t.Errorf("one whose turn comes too late: exit %d, %s", code, out)
	}
}

// TestAnInterruptedWaitGivesItsPlaceBack states that a command that is interrupted holds up nobody.
func TestAnInterruptedWaitGivesItsPlaceBack(t *testing.T) {
	env := []string{"SASH_REDIS=" + redistest.Start(t).Addr()}
	limit := []string{"allow", "k", "--limit", "1/1h"}
	if code, _, err := sash(t, env, limit...); code != 0 {
		t.Fatal(err)
	}
	retry := func() (seconds float64) {
		t.Helper()
		_, out, _ := sash(t, env, append(limit, "--json")...)
		var d struct {
			RetryAfter float64 `json:"retry_after"`
		}
		if err := json.Unmarshal([]byte(out), &d); err != nil {
			t.Fatal(err, out)
		}
		return d.RetryAfter
	}
	var said strings.Builder
	waiter := exec.CommandContext(t.Context(), binary, append(limit, "--wait", "2h")...)
	waiter.Env, waiter.Stderr = append(os.Environ(), env...), &said
	if err := waiter.Start(); err != nil {
		t.Fatal(err)
	}
	for retry() < 3700 { // behind the waiter
		if waiter.ProcessState != nil {
			t.Fatal("the waiter ended")
		}
	}
	if err := waiter.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := waiter.Wait(); err == nil || !strings.Contains(said.String(), "interrupt") && !strings.Contains(said.String(), "cancel") {
		t.Errorf("interrupted it ends with %v and says %q", err, said.String())
	}
	if got := retry(); got > 3600 {
		t.Errorf("the next waits %v s, behind one that has gone", got)
	}
}

// TestWrongWaits states that a wait that is not possible is an error at once.
func TestWrongWaits(t *testing.T) {
	env := []string{"SASH_REDIS=" + redistest.Start(t).Addr()}
	for _, wrong := range [][2]string{{"--wait=-1s", "up to 24h"}, {"--wait=25h", "up to 24h"}, {"--wait=soon", "--wait"}} {
		code, _, err := sash(t, env, "allow", "k", "--limit", "1/1s", wrong[0])
		if code != 2 || !strings.Contains(err, wrong[1]) {
			t.Errorf("%s: exit %d, %s", wrong[0], code, err)
		}
	}
	for _, algorithm := range []string{"fixed-window", "gcra"} {
		code, _, err := sash(t, env, "allow", "k", "--limit", "1/1s", "--wait", "1s", "--algorithm", algorithm)
		if want := fmt.Sprintf("algorithm %s", algorithm); code != 2 || !strings.Contains(err, want) {
			t.Errorf("%s: exit %d, %s", algorithm, code, err)
		}
	}
	if code, _, err := sash(t, nil, "serve", "--max-wait", "25h"); code != 2 || !strings.Contains(err, "to 24h") {
		t.Errorf("serve: exit %d, %s", code, err)
	}
}
