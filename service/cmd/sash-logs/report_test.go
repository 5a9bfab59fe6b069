package main

import (
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"example.com/sash/service/internal/servertest"
)

var (
	madeFrom    = regexp.MustCompile(`(?s)<ul id="read">(.*)</ul>.*Make this`)
	commandLine = regexp.MustCompile(`(?s)<pre id="command">(.*?)</pre>`)
)

// A page says what it was made from, and how to make it again: whoever got it can.
func TestThePageSaysWhatItIsMadeFrom(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report.html")
	if code, out, err := sash(t, "replay", "--html", file, "--try", "3/1m", "--key", "prefix(remote_address, 16)", "--cost", `path endsWith ".png" ? 2 : 1`,
		"--where", "status < 400 && path != '/<b>'", sampleLog); code != 0 {
		t.Fatalf("exit %d, %s%s", code, out, err)
	}
	text := string(readFile(t, file))
	got := html.UnescapeString(madeFrom.FindStringSubmatch(text)[1])
	if want := regexp.MustCompile(`(?s)<bdi>Read as combined: 400 lines of ` + sampleLog + `, none broken.<.*<bdi>A client is the network of the address ` +
		`\(--key 'prefix\(remote_address, 16\)'\), such as 111.*<bdi>393 requests of 78 networks in 3h1m, from 2015-05-17T10:05:00Z to 2015-05-17T13:05:59Z<` +
		`.*<bdi>\(7 left out by --where; 366 after .*<bdi>Made 20\d\d-\d\d-\d\d \d\d:\d\d UTC by sash-logs .+, go1`); !want.MatchString(got) {
		t.Errorf("the page is made from %s", got)
	}
	want := "sash-logs replay --html " + file + " --try 3/1m --key 'prefix(remote_address, 16)' --cost 'path endsWith \".png\" ? 2 : 1' --where 'status < 400 && path != '\\''/<b>'\\''' " + sampleLog
	if again := html.UnescapeString(commandLine.FindStringSubmatch(text)[1]); again != want {
		t.Errorf("the command is\n%s\nwant\n%s", again, want)
	}
	if strings.Contains(text, "clients limited") || !strings.Contains(text, "networks limited") {
		t.Error("the networks are called clients")
	}
}

// Neither an answer, nor a page, nor an error names a client that is hidden.
func TestHiddenClientsAreNowhere(t *testing.T) {
	page := filepath.Join(t.TempDir(), "report.html")
	all := make(map[string]bool)
	for _, args := range [][]string{
		{"--json"}, {"--html", page}, {"--key", `string(int(remote_address))`}, {"--key", `prefix(remote_address, 40)`},
	} {
		code, out, err := sash(t, append(append([]string{"replay", "--try", "3/1m", "--worst", "100000", "--hide-clients"}, args...), sampleLog)...)
		if want := args[0] == "--key"; want != (code == 2) || want != strings.Contains(err, sampleLog+":1: an expression fails") {
			t.Errorf("%s: exit %d, %s", args, code, err)
		}
		all[out+err] = true
	}
	all[string(readFile(t, page))] = true
	for text := range all {
		for line := range strings.Lines(string(readFile(t, sampleLog))) {
			if address, _, _ := strings.Cut(line, " "); strings.Contains(text, address) {
				t.Fatalf("%s is in %.200s", address, text)
			}
		}
	}
	_, again, _ := sash(t, "replay", "--try", "3/1m", "--worst", "100000", "--hide-clients", "--json", sampleLog)
	if all[again] {
		t.Error("each run must have a key of its own")
	}
}

// Every command of docs/choosing-a-limit.md works, one after the other in one directory, and on the whole log it
// prints what the page says. Run with -update to write what it prints into the page.
func TestThePageOnChoosingALimit(t *testing.T) {
	page := filepath.Join(repository, "docs", "choosing-a-limit.md")
	text := readFile(t, page)
	log, whole := servertest.Must(filepath.Abs(wholeLog))(t), true
	if _, err := os.Stat(log); err != nil {
		t.Logf("the whole log is absent (%v): running the commands on the sample", err)
		log, whole = servertest.Must(filepath.Abs(sampleLog))(t), false
	}
	dir, self := t.TempDir(), servertest.Must(os.Executable())(t)
	for name, target := range map[string]string{"access.log": log, "sash": self, "sash-logs": self} {
		servertest.Check(t, os.Symlink(target, filepath.Join(dir, name)))
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
