package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Every command of docs/choosing-a-limit.md works, one after the other in one directory, and on the whole log it
// prints what the page says. Run with -update to write what it prints into the page.
func TestThePageOnChoosingALimit(t *testing.T) {
	page := filepath.Join(repository, "docs", "choosing-a-limit.md")
	text := readFile(t, page)
	log, whole := must(filepath.Abs(wholeLog)), true
	if _, err := os.Stat(log); err != nil {
		t.Logf("the whole log is absent (%v): running the commands on the sample", err)
		log, whole = must(filepath.Abs(sampleLog)), false
	}
	dir, self := t.TempDir(), must(os.Executable())
	for name, target := range map[string]string{"access.log": log, "sash": self, "sash-logs": self} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	parts := strings.Split(string(text), "```")
	ran, compared := 0, 0
	for i := 1; i < len(parts); i += 2 {
		script, isCommand := strings.CutPrefix(parts[i], "sh\n")
		if !isCommand {
			continue
		}
		ran++
		if strings.HasPrefix(script, "sash serve") { // its flags are right, and it reads the configuration
			script = strings.TrimSpace(script) + " --help > help.txt\n"
		}
		cmd := exec.CommandContext(t.Context(), "sh", "-e", "-c", script)
		cmd.Dir, cmd.Env = dir, []string{"PATH=" + dir + ":/usr/bin:/bin"}
		out, failed := cmd.CombinedOutput()
		if failed != nil && (whole || !strings.Contains(script, "--fail-if")) {
			t.Errorf("%s%v: %s", script, failed, out)
		}
		hasOutput := i+2 < len(parts) && strings.TrimSpace(parts[i+1]) == "" && strings.HasPrefix(parts[i+2], "\n")
		switch {
		case !whole:
		case !hasOutput && len(out) > 0:
			t.Errorf("%sprints what the page does not have:\n%s", script, out)
		case hasOutput:
			compared++
			// Lines of a page have no blanks at their ends.
			lines := strings.Split("\n"+string(out), "\n")
			for j := range lines {
				lines[j] = strings.TrimRight(lines[j], " ")
			}
			got := strings.Join(lines, "\n")
			if *update {
				parts[i+2] = got
			} else if parts[i+2] != got {
				t.Errorf("%sprints, unlike the page (write it with -update):%s", script, got)
			}
		}
	}
	if ran < 6 || whole && compared < 5 {
		t.Errorf("%d commands found, %d with an output", ran, compared)
	}
	if *update {
		put(t, page, strings.Join(parts, "```"))
	}
}
