package rivals

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"
)

var ask = request{Op: "ask", Contender: "c", Key: "k", Units: 1, WindowMS: 1000}

// gone fails the test if the process still runs.
func gone(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the program still runs: signal 0: %v", err)
	}
}

func TestAProgramAnswers(t *testing.T) {
	c, err := startChild(t.Context(), command(self(t, "fake", "good")))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{true, false} {
		if a, err := c.call(t.Context(), ask); err != nil || *a.Allowed != want {
			t.Errorf("call %d: %v, %v, want %v", i+1, a.Allowed, err, want)
		}
	}
	a, err := c.call(t.Context(), request{Op: "load", ForMS: 10})
	if err != nil || a.Decisions != 100 || a.MS != 10 || a.P99 != 99 {
		t.Errorf("load: %+v, %v", a, err)
	}
	c.end()
	gone(t, c.cmd.Process.Pid)
}

// An answer that is an error is one contender's; the program goes on.
func TestAnErrorIsNotTheEnd(t *testing.T) {
	c, err := startChild(t.Context(), command(self(t, "fake", "an error")))
	if err != nil {
		t.Fatal(err)
	}
	defer c.end()
	for range 2 {
		if _, err := c.call(t.Context(), ask); err == nil || err.Error() != "no such limit" || errors.Is(err, errBroken) {
			t.Errorf("the error is %v", err)
		}
	}
}

func TestAProgramThatBreaksTheProtocolEnds(t *testing.T) {
	for way, want := range map[string]string{
		"dies":         "exit status 3",
		"hangs":        "did not answer",
		"garbage":      `it wrote "<html>\n"`,
		"endless line": "a line of more than",
		"no fields":    "lacks fields",
	} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			c, err := startChild(t.Context(), command(self(t, "fake", way)))
			if err != nil {
				t.Fatal(err)
			}
			ctx := t.Context()
			if way == "hangs" {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, time.Millisecond)
				defer cancel()
			}
			_, err = c.call(ctx, ask)
			if !errors.Is(err, errBroken) || !strings.Contains(err.Error(), want) {
				t.Errorf("the error is %v, want %q", err, want)
			}
			gone(t, c.cmd.Process.Pid)
			if _, again := c.call(t.Context(), ask); again != err {
				t.Errorf("the next call's error is %v", again)
			}
		})
	}
}

func TestAProgramThatDoesNotStartEnds(t *testing.T) {
	for way, want := range map[string]string{
		"dies at start":    "exit status 3",
		"hangs at start":   "did not answer",
		"garbage at start": `it wrote "Picked up JAVA_TOOL_OPTIONS\n"`,
		"nothing to offer": "no contenders",
	} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			if way == "hangs at start" {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, time.Millisecond)
				defer cancel()
			}
			cmd := command(self(t, "fake", way))
			if _, err := startChild(ctx, cmd); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("the error is %v, want %q", err, want)
			}
			gone(t, cmd.Process.Pid)
		})
	}
}

// A program that ignores the end of its input is killed.
func TestAProgramThatStaysIsKilled(t *testing.T) {
	t.Parallel()
	c, err := startChild(t.Context(), command(self(t, "fake", "stays")))
	if err != nil {
		t.Fatal(err)
	}
	c.end()
	gone(t, c.cmd.Process.Pid)
}
