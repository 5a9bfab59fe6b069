package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"example.com/sash/internal/redistest"
)

const repository = "../../.."

// shellBlocks returns the fenced blocks of README.md that are commands: those that name sash as a command.
func shellBlocks(t *testing.T) (blocks [][]string) {
	t.Helper()
	text := readFile(t, filepath.Join(repository, "README.md"))
	for i, part := range strings.Split(string(text), "```") {
		language, code, _ := strings.Cut(part, "\n")
		commands := strings.Contains(code, "sash serve") || strings.Contains(code, "sash allow")
		if i%2 == 1 && (language == "" || language == "sh") && commands {
			blocks = append(blocks, strings.Split(strings.TrimSpace(code), "\n"))
		}
	}
	return blocks
}

// shell runs a script where bin/sash and sash are the command, against a Redis of the test.
func shell(t *testing.T, redis, script string) (code int, output string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(binary, filepath.Join(dir, "bin", "sash")); err != nil {
		t.Fatal(err)
	}
	script = strings.ReplaceAll(script, "redis://127.0.0.1:6379", redis)
	cmd := exec.CommandContext(t.Context(), "sh", "-c", script)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + filepath.Join(dir, "bin") + ":/usr/bin:/bin", "REDIS=" + redis}
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// Every command line of README.md works as it stands. For sash serve only the flags are checked, and sash verify is
// shortened.
func TestCommandsOfTheReadme(t *testing.T) {
	redis := "redis://" + redistest.Start(t).Addr()
	checked := 0
	for _, block := range shellBlocks(t) {
		for _, line := range block {
			command, comment, _ := strings.Cut(line, "#")
			if !strings.HasPrefix(line, "bin/sash ") && !strings.HasPrefix(line, "sash ") {
				continue
			}
			checked++
			switch {
			case strings.Contains(command, "sash serve"):
				line = command + " --help"
			case strings.Contains(command, "sash verify"):
				line = command + " --for 1s"
			}
			if code, out := shell(t, redis, line); code != 0 || out == "" {
				t.Errorf("%s: exit %d (%s): %s", line, code, strings.TrimSpace(comment), out)
			}
		}
	}
	if checked < 4 {
		t.Errorf("only %d commands found", checked)
	}
}

func TestTheReadmeBuildsTheCommand(t *testing.T) {
	for _, block := range shellBlocks(t) {
		for _, line := range block {
			if !strings.HasPrefix(line, "go build ") {
				continue
			}
			args := strings.Fields(line)
			cmd := exec.Command(args[0], append([]string{"build", "-n"}, args[2:]...)...) // the package is linked into this test
			cmd.Dir = repository
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", line, err, out)
			}
			return
		}
	}
	t.Error("README.md does not say how to build the command")
}

// The loop of README.md runs as it stands: of 9500 units, 8500 of which are used, there are 10 turns of 100 left, and then it
// ends by itself.
func TestTheCronJobOfTheReadmeStops(t *testing.T) {
	redis := "redis://" + redistest.Start(t).Addr()
	for _, block := range shellBlocks(t) {
		if !strings.HasPrefix(block[0], "while sash allow") {
			continue
		}
		used, _, ok := strings.Cut(strings.TrimPrefix(block[0], "while "), "--cost 100;")
		if !ok {
			t.Fatalf("the loop begins with %q", block[0])
		}
		code, out := shell(t, redis, used+"--cost 8500\nfetch_one() { echo fetched; }\n"+strings.Join(block, "\n"))
		if n := strings.Count(out, "fetched\n"); code != 0 || n != 10 || !strings.Contains(out, "refused by 9500/24h") {
			t.Errorf("exit %d after %d turns, want 10: %s", code, n, out)
		}
		return
	}
	t.Error("README.md has no loop around sash allow")
}
